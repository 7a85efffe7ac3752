"""Frames to send: random ones that fit the model, or those of files' arrays, which are checked, never converted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from shisha_rt.array_file import Array, Content
from shisha_rt.errors import BadInput, Error, about
from shisha_rt.model.graph import Tensor
from shisha_rt.model.input_sizes import shapes_in_words
from shisha_rt.tensors import NAME_OF, NUMPY_OF

Frame: TypeAlias = Mapping[str, Array]


def model_inputs(metadata: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The inputs of `model_metadata`; if several shapes are served, those of the first."""
    return model_shapes(metadata)[0]


def model_shapes(metadata: Mapping[str, Any]) -> tuple[tuple[Tensor, ...], ...]:
    """The inputs of `model_metadata`, for each shape that is served."""
    inputs = metadata["inputs"]
    shapes = metadata.get("shapes") or [{tensor["name"]: tensor["shape"] for tensor in inputs}]
    return tuple(
        tuple(
            Tensor(tensor["name"], tuple(shape[tensor["name"]]), tensor["datatype"], made_up=tensor.get("made_up", 0))
            for tensor in inputs
        )
        for shape in shapes
    )


def random_frames(inputs: Sequence[Tensor], count: int, seed: int) -> list[Frame]:
    """Floats are normal with unit variance; integers are 0 or 1, as they may be indexes, types or masks.

    An input with a `made_up` value has that.
    """
    rng = np.random.default_rng(seed)
    return [{tensor.name: _random(tensor, rng) for tensor in inputs} for _ in range(count)]


def _random(tensor: Tensor, rng: np.random.Generator) -> Array:
    dtype = NUMPY_OF[tensor.datatype]
    if tensor.made_up:
        return np.full(tensor.shape, tensor.made_up, dtype)
    if dtype.kind == "f":
        return rng.standard_normal(tensor.shape).astype(dtype)
    return rng.integers(0, 2, tensor.shape).astype(dtype)


def frames_of_any(path: Path, content: Content, shapes: Sequence[Sequence[Tensor]]) -> list[Frame]:
    """The frames of one file's content, which all have one of `shapes`. Raises BadInput if none of `shapes` fits."""
    if len(shapes) == 1:
        return frames_of(path, content, shapes[0])
    with about(path):
        arrays = _by_name(content, shapes[0])
        whole = [inputs for inputs in shapes if all(arrays[tensor.name].shape == tensor.shape for tensor in inputs)]
        for inputs in (*whole, *shapes):  # one frame of some shape takes precedence over several of a different shape
            with contextlib.suppress(BadInput):
                return frames_of(path, content, inputs)
        shapes_sent = shapes_in_words({name: array.shape for name, array in arrays.items()})
        served = ", ".join(shapes_in_words({tensor.name: tensor.shape for tensor in inputs}) for inputs in shapes)
        raise _wrong(f"{shapes_sent}, expected one of {served}, or n of them")


def frames_of(path: Path, content: Content, inputs: Sequence[Tensor]) -> list[Frame]:
    """The frames of one file's content. Raises BadInput if it does not fit the model.

    For an input of shape S, an array of shape S is one frame and one of shape (n, *S) is n frames; if S starts with a
    batch of 1, (n, *S[1:]) is n frames as well.
    """
    with about(path):
        arrays = _by_name(content, inputs)
        split = {tensor.name: _split(tensor, arrays[tensor.name]) for tensor in inputs}
        counts = {name: len(array) for name, array in split.items()}
        if len(set(counts.values())) > 1:
            each = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise _wrong(f"different numbers of frames ({each}), expected as many for each input")
        count = next(iter(counts.values()), 0)
        if not count:
            raise _wrong("no frames, expected at least one")
        return [{name: array[i, ...] for name, array in split.items()} for i in range(count)]


def has_frames_along_batch(contents: Iterable[Content], shapes: Sequence[Sequence[Tensor]]) -> bool:
    """Whether frames lie along the inputs' batch axis, which is 1: no file that fits the model has an axis more."""
    ranks = {tensor.name: len(tensor.shape) for tensor in shapes[0]}
    named = ({shapes[0][0].name: content} if isinstance(content, np.ndarray) else content for content in contents)
    return all(tensor.shape[:1] == (1,) for tensor in shapes[0]) and all(
        array.ndim == ranks[name] for arrays in named for name, array in arrays.items()
    )


def _by_name(content: Content, inputs: Sequence[Tensor]) -> Mapping[str, Array]:
    names = [tensor.name for tensor in inputs]
    if isinstance(content, np.ndarray):
        if len(names) != 1:
            raise _wrong(f"one array without a name, expected an .npz file with arrays {', '.join(names)}")
        return {names[0]: content}
    if set(content) != set(names):
        there = ", ".join(sorted(content)) or "none"
        raise _wrong(f"arrays {there}, expected exactly the model's inputs: {', '.join(names)}")
    return content


def _split(tensor: Tensor, array: Array) -> Array:
    """`array` as (n, *shape)."""
    shape = tuple(tensor.shape)
    if array.dtype != NUMPY_OF[tensor.datatype]:
        datatype = NAME_OF.get(array.dtype, str(array.dtype))
        wanted = f"{tensor.datatype} (numpy {NUMPY_OF[tensor.datatype].name})"
        raise _wrong(f"{tensor.name}: datatype {datatype}, expected {wanted}")
    if array.shape == shape:
        return array[None]
    if array.shape[1:] == shape:
        return array
    if shape[:1] == (1,) and array.ndim == len(shape) and array.shape[1:] == shape[1:]:
        return array[:, None]
    raise _wrong(f"{tensor.name}: shape {list(array.shape)}, expected {list(shape)}, or n of them")


def _wrong(message: str) -> BadInput:
    return BadInput(message, Error.WRONG_FRAMES)
