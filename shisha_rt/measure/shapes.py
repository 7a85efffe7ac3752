"""A model compiled for several shapes of its inputs, as one model: a plan that is legal for it is legal for each shape.

Each shape is cleaned and compiled by itself, so that it runs as fast as if it were the only one. All shapes have the
same layers, which plans are made of. A cut is legal if it is legal in every shape; a layer's input and output bytes are
the largest of any shape. Usually the engine brings weights into the same form for all shapes: then they are hard links
to one file, which a worker has in memory once. Otherwise a layer's weights are in memory once for each shape.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.errors import BadInput, Error
from shisha_rt.measure.compile import Tell, compile_model, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.graph import Tensor
from shisha_rt.model.input_sizes import InputSizes, shapes_in_words
from shisha_rt.model.layers import Layer

_LARGE_BYTES: Final = 1 << 20
"""Smaller files are graphs and indexes, or too small to matter."""


def compile_shapes(path: Path, sizes: Sequence[InputSizes], tell: Tell = silent) -> Compiled:
    """The model at `path`, compiled for each of `sizes`; `shapes` of the result has them in the same order.

    Raises as `compile_model` does, and BadInput if two shapes are equal or their layers differ.
    """
    shapes = [compile_model(path, input_sizes, tell) for input_sizes in sizes]
    for number, shape in enumerate(shapes):
        if any(_input_shapes(shape) == _input_shapes(other) for other in shapes[:number]):
            raise BadInput(f"{path}: shapes {_words(shape)} are set twice, expected once", Error.WRONG_SIZES)
        _check_alike(path, shapes[0], shape)
        _share_weights(shapes[0], shape)
    return as_one(shapes)


def as_one(shapes: Sequence[Compiled]) -> Compiled:
    """Combine a model's compiled `shapes`, which have been checked, into one; a single one is returned as it is."""
    if len(shapes) == 1:
        return shapes[0]
    legal_cuts = tuple(sorted(frozenset.intersection(*(shape.legal_cuts for shape in shapes))))
    alike = tuple(replace(shape, index=msgspec.structs.replace(shape.index, legal_cuts=legal_cuts)) for shape in shapes)
    largest = max(alike, key=lambda shape: sum(tensor.size_bytes for tensor in shape.model.graph.inputs))
    copies = len({_largest_file(shape) for shape in alike})
    layers = tuple(
        _together(*of_layer, copies=copies)
        for of_layer in zip(largest.layers, *(shape.layers for shape in alike), strict=True)
    )
    return replace(largest, layers=layers, shapes=alike)


def _together(layer: Layer, *shapes: Layer, copies: int) -> Layer:
    """`layer` with the most bytes that it needs in any of `shapes`; its weights are in memory `copies` times."""
    return replace(
        layer,
        weight_bytes=copies * max(shape.weight_bytes for shape in shapes),
        in_bytes=max(shape.in_bytes for shape in shapes),
        out_bytes=max(shape.out_bytes for shape in shapes),
    )


def _share_weights(compiled: Compiled, other: Compiled) -> None:
    """Replace files of `other` by hard links to equal files of `compiled`, so that their pages are in memory once."""
    for file in other.engine_folder.iterdir():
        twin = compiled.engine_folder / file.name
        if file.stat().st_size < _LARGE_BYTES or not twin.exists() or twin.samefile(file):
            continue
        if filecmp.cmp(twin, file, shallow=False):
            link = other.engine_folder.parent / f".{file.name}-{os.getpid()}"
            with contextlib.suppress(OSError):  # a file system without hard links, or a cache that is not ours to write
                link.hardlink_to(twin)
                link.replace(file)
                link.unlink(missing_ok=True)  # `replace` leaves it if another process has just linked the same


def _largest_file(compiled: Compiled) -> int:
    """The inode number of the largest file, which holds the weights."""
    stats = (file.stat() for file in compiled.engine_folder.iterdir())
    return max(stats, key=lambda stat: stat.st_size).st_ino


def _check_alike(path: Path, first: Compiled, other: Compiled) -> None:
    aspects: tuple[tuple[str, Callable[[Compiled], Sequence[object]]], ...] = (
        ("inputs", lambda compiled: list(map(_kind, compiled.model.graph.inputs))),
        ("outputs", lambda compiled: list(map(_kind, compiled.model.graph.outputs))),
        ("layers", lambda compiled: [(layer.name, layer.op) for layer in compiled.layers]),
    )
    for what, aspect in aspects:
        ones, others = aspect(first), aspect(other)
        if ones != others:
            unlike = next((pair for pair in zip(ones, others, strict=False) if pair[0] != pair[1]), None)
            differ = (
                f"{len(ones)} and {len(others)} {what}" if unlike is None else f"{what} {unlike[0]} and {unlike[1]}"
            )
            raise BadInput(
                f"{path}: with {_words(first)} and {_words(other)} it has {differ}; "
                "expected one network, the same but for its sizes",
                Error.WRONG_SIZES,
            )


def _kind(tensor: Tensor) -> tuple[str, str, int]:
    return tensor.name, tensor.datatype, len(tensor.shape)


def _input_shapes(compiled: Compiled) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in compiled.model.graph.inputs}


def _words(compiled: Compiled) -> str:
    return shapes_in_words(_input_shapes(compiled))
