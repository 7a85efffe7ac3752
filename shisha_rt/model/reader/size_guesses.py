"""Sizes to try for dimensions that a model leaves open: first what the model hints at, then what is usual.

A hint is a channel count that follows from the weights of a convolution or product that reads the input, or the image
size that exporters of detectors write into the metadata. The sizes are only suggested to the user, never served.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final

import onnx

from shisha_rt.model.reader.one_run import first_that_runs

_IMAGES: Final = (
    *((224, 224), (320, 320), (48, 320), (32, 320), (640, 640), (32, 100), (64, 64), (128, 128), (256, 256)),
    *((416, 416), (512, 512), (96, 96), (299, 299), (112, 112), (28, 28)),
)
"""Height and width: classifiers, detectors, lines of text."""
_LARGEST_IMAGE: Final = 4096
"""Largest image size that is tried because of a file's metadata: larger ones could take all memory."""
_MOST_ELEMENTS: Final = 4 * _LARGEST_IMAGE**2
"""Most elements of all inputs in one try: sizes that a user gave can make every try larger."""
_LENGTHS: Final = (16, 512, 1, 128, 8, 64, 100, 256, 1000, 16000)
"""Sizes for inputs that are no images. Dimensions but the last are tried as 1 first, as in batches and states."""
_MOST_TRIES: Final = 300
"""Sets of sizes that are tried on the engine."""


def sizes_that_run(
    model: onnx.ModelProto, names: Mapping[str, Sequence[str]], known: Mapping[str, int]
) -> dict[str, int] | None:
    """The first sizes, by the names of dimensions, with which the engine runs the model; None if there are none.

    `names` are those of each input's dimensions, empty where the size is fixed; `known` sizes stay as they are.
    """
    inputs = [value for value in model.graph.input if value.name in names]

    def shapes(sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(
                sizes[name] if name else dim.dim_value
                for dim, name in zip(value.type.tensor_type.shape.dim, names[value.name], strict=True)
            )
            for value in inputs
        )

    guesses = [
        sizes
        for sizes in islice(_guesses(model, names, known), _MOST_TRIES)
        if sum(map(math.prod, shapes(sizes))) <= _MOST_ELEMENTS
    ]
    first = first_that_runs(model, [shapes(sizes) for sizes in guesses]) if guesses else None
    return None if first is None else guesses[first]


def _guesses(
    model: onnx.ModelProto, names: Mapping[str, Sequence[str]], known: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Yield sets of sizes by name, each once, the likeliest first. Arguments are as in `sizes_that_run`."""
    certain = dict(known)
    for value in model.graph.input:
        for axis, size in _sizes_from_weights(model, value.name).items():
            if axis < len(names.get(value.name, ())) and names[value.name][axis]:
                certain.setdefault(names[value.name][axis], size)
    images = [axes for value in model.graph.input if (axes := _image_axes(value, names.get(value.name, ())))]
    tried = []
    last = {axis_names[-1] for axis_names in names.values() if axis_names}
    for length, is_one, (height, width) in product(
        _LENGTHS, (True, False), (*_image_sizes_from_metadata(model), *_IMAGES)
    ):
        sizes = dict(certain)
        for image in images:
            for name, size in zip(image, (height, width), strict=True):
                if name:
                    sizes.setdefault(name, size)
        for name in (name for axis_names in names.values() for name in axis_names if name):
            sizes.setdefault(name, 1 if is_one and name not in last else length)
        if sizes not in tried:
            tried.append(sizes)
            yield sizes


def _image_axes(value: onnx.ValueInfoProto, names: Sequence[str]) -> tuple[str, str] | None:
    """Names of height and width if an input may be an image: four dimensions, channels first or last."""
    if len(names) != 4:
        return None
    channels_last = value.type.tensor_type.shape.dim[3].dim_value in (1, 3, 4)
    return (names[1], names[2]) if channels_last else (names[2], names[3])


def _sizes_from_weights(model: onnx.ModelProto, tensor: str) -> dict[int, int]:
    """Sizes of an input's axes (counted from 0) that follow from the weights applied to it."""
    weights = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    for node in model.graph.node:
        if not node.input or node.input[0] != tensor or len(node.input) < 2 or node.input[1] not in weights:
            continue
        shape = weights[node.input[1]]
        if node.op_type == "Conv" and len(shape) > 1:
            group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
            return {1: shape[1] * group}
        if node.op_type == "MatMul" and len(shape) > 1:
            rank = next(len(v.type.tensor_type.shape.dim) for v in model.graph.input if v.name == tensor)
            return {rank - 1: shape[-2]}
    return {}


def _image_sizes_from_metadata(model: onnx.ModelProto) -> list[tuple[int, int]]:
    """Height and width in `imgsz`, which some training tools for detectors write."""
    for entry in model.metadata_props:
        if entry.key == "imgsz":
            try:
                height, width = (int(size) for size in json.loads(entry.value))
            except (ValueError, TypeError, OverflowError, RecursionError):
                return []
            return [(height, width)] if 0 < min(height, width) <= max(height, width) <= _LARGEST_IMAGE else []
    return []
