"""Sizes of the dimensions that a model leaves open: afterwards every input has a static shape.

A size is the user's, else the one that the model itself suggests (`model.default_dims`), else 1 for a batch, the first
dimension of an input. Dimensions with the same name have the same size. A dimension without a name, or with one that
exporters write for an unknown name, is called `INPUT:AXIS`. All dimensions that remain open are reported at once, with
options that work.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import onnx

from shisha_rt.errors import BadInput, Error, about
from shisha_rt.model.default_dims import default_dims
from shisha_rt.model.input_sizes import LARGEST_SIZE, InputSizes
from shisha_rt.model.subgraphs import subgraphs

_NO_NAMES: Final = frozenset({"", "?", "-1", "None", "none", "unk", "unknown", "*"})
_MOST_LISTED: Final = 12

Guess = Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], "Mapping[str, int] | None"]
"""From the names of each input's dimensions (empty where fixed) and known sizes to sizes that run, or None."""


SizeSource = Literal["user", "model", "batch"]
"""Where a dimension's size is from. "batch": nobody gave it, and an input's first dimension is then 1."""


@dataclass(frozen=True, slots=True)
class SettledDim:
    """A dimension that the file leaves open, and the size that it gets."""

    name: str
    size: int
    source: SizeSource


@dataclass(frozen=True, slots=True)
class _Input:
    """A run-time input. `names`: those of its dimensions, empty where a size is fixed."""

    value: onnx.ValueInfoProto
    names: tuple[str, ...]

    @property
    def dims(self) -> list[onnx.TensorShapeProto.Dimension]:
        return list(self.value.type.tensor_type.shape.dim)


def settle_sizes(model: onnx.ModelProto, sizes: InputSizes, guess: Guess) -> tuple[SettledDim, ...]:
    """Write the sizes of all open dimensions of inputs into `model`; its other shapes are left to inference.

    Return these dimensions, each once, with the sources of their sizes. Raises BadInput for sizes that do not fit, and
    if a dimension remains open; `guess` is then asked for sizes to suggest.
    """
    values = runtime_inputs(model.graph)
    _check_open_shapes(values, sizes)
    inputs = [_Input(value, _names(value)) for value in values]
    given = _given(inputs, sizes)
    batches = {each.names[0]: 1 for each in inputs if each.names and each.names[0]}
    suggested = default_dims(model)
    known = {**batches, **suggested, **given}
    if not known.keys() >= set(_all_names(inputs)):
        guessed = guess({each.value.name: each.names for each in inputs}, known)
        raise BadInput(_what_is_open(inputs, known, guessed), Error.UNKNOWN_SIZES)
    for each in inputs:
        for dim, name in zip(each.dims, each.names, strict=True):
            if name:
                dim.dim_value = known[name]
    return tuple(
        SettledDim(name, known[name], "user" if name in given else "model" if name in suggested else "batch")
        for name in _all_names(inputs)
    )


def runtime_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def sized_names(graph: onnx.GraphProto) -> tuple[set[str], set[str]]:
    """The names for which sizes may be given: of inputs (`--shape`), and of their open dimensions (`--dim`)."""
    values = runtime_inputs(graph)
    return {value.name for value in values}, {name for value in values for name in _names(value) if name}


def forget_other_shapes(graph: onnx.GraphProto, kept: int = 0) -> None:
    """Delete the shapes that the file states for other tensors: they may be for different sizes, or wrong.

    Inference finds them again. The last `kept` outputs of the graph keep theirs: an engine goes by what a Loop's body
    states of those that it stacks if it does not run once.
    """
    del graph.value_info[:]
    for value in graph.output[: len(graph.output) - kept]:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    for node in graph.node:
        stacked = len(node.output) - len(node.input[2:]) if node.op_type == "Loop" and not node.domain else 0
        for inner in subgraphs(node):
            forget_other_shapes(inner, max(0, stacked))


def _check_open_shapes(inputs: Sequence[onnx.ValueInfoProto], sizes: InputSizes) -> None:
    """Check `--shape` against the inputs; an input without a shape gets as many open dimensions as are given.

    Raises BadInput for a shape that does not fit, and for an input that still has none.
    """
    for name, shape in sizes.shapes.items():
        text = _as_option(name, shape)
        value = next((value for value in inputs if value.name == name), None)
        if value is None:
            known = ", ".join(repr(value.name) for value in inputs)
            raise BadInput(f"{text}: the model has no such input, expected one of {known}", Error.WRONG_SIZES)
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            tensor.shape.CopyFrom(onnx.TensorShapeProto(dim=[{} for _ in shape]))
        if len(tensor.shape.dim) != len(shape):
            expected = f"expected {len(tensor.shape.dim)}: {_shown(value)}"
            raise BadInput(f"{text}: {len(shape)} sizes, {expected}", Error.WRONG_SIZES)
    for value in inputs:
        if not value.type.tensor_type.HasField("shape"):
            raise BadInput(
                f"input {value.name!r} has no shape, not even a number of dimensions; "
                f"expected all of it, as in --shape {value.name}=1x3x224x224",
                Error.MODEL_UNSUPPORTED,
            )


def _names(value: onnx.ValueInfoProto) -> tuple[str, ...]:
    """Names of an input's dimensions, empty where a size is fixed. Raises BadInput for a size of 0."""
    names = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value == 0:
            expected = "expected 1 or more, or none where it is unknown"
            raise BadInput(f"input {value.name!r} has size 0 in dimension {axis}; {expected}", Error.MODEL_UNSUPPORTED)
        name = f"{value.name}:{axis}" if dim.dim_param.strip() in _NO_NAMES else dim.dim_param
        names.append("" if dim.dim_value > 0 else name)
    return tuple(names)


def _given(inputs: Sequence[_Input], sizes: InputSizes) -> dict[str, int]:
    """Sizes by dimension name, from `--dim` and `--shape`. Raises BadInput for sizes that contradict."""
    open_names = _all_names(inputs)
    for name, size in sizes.dims.items():
        if name not in open_names:
            expected = (
                f"one of {', '.join(open_names)}" if open_names else "none, as all its input dimensions are fixed"
            )
            raise BadInput(
                f"--dim {name}={size}: no unknown dimension of that name; expected {expected}", Error.WRONG_SIZES
            )
        if not 1 <= size <= LARGEST_SIZE:
            raise BadInput(f"--dim {name}={size}: not a size; expected 1 to {LARGEST_SIZE}", Error.WRONG_SIZES)
    known, option_of = dict(sizes.dims), {name: f"--dim {name}={size}" for name, size in sizes.dims.items()}
    by_name = {each.value.name: each for each in inputs}
    for input_name, shape in sizes.shapes.items():
        text, given_to = _as_option(input_name, shape), by_name[input_name]
        with about(text):
            for axis, (name, size, dim) in enumerate(zip(given_to.names, shape, given_to.dims, strict=True)):
                if not 1 <= size <= LARGEST_SIZE:
                    raise BadInput(f"size {size} in dimension {axis}; expected 1 to {LARGEST_SIZE}", Error.WRONG_SIZES)
                if not name and dim.dim_value != size:
                    raise BadInput(
                        f"dimension {axis} is {dim.dim_value} in the model, expected that size", Error.WRONG_SIZES
                    )
                if name and known.setdefault(name, size) != size:
                    other = f"{option_of[name]} says {known[name]} for {name!r}"
                    raise BadInput(f"dimension {axis} is {size}, but {other}; expected one size", Error.WRONG_SIZES)
                option_of.setdefault(name, text)
    return known


def _all_names(inputs: Sequence[_Input]) -> list[str]:
    return list(dict.fromkeys(name for each in inputs for name in each.names if name))


def _what_is_open(inputs: Sequence[_Input], known: Mapping[str, int], guessed: Mapping[str, int] | None) -> str:
    """Describe every open dimension that is not `known`, with options that work if sizes were found."""
    unsettled = [name for each in inputs for name in each.names if name and name not in known]
    open_inputs = [each for each in inputs if not known.keys() >= set(filter(None, each.names))]
    listed = []
    for each in open_inputs[:_MOST_LISTED]:
        axes = [f"{axis} ({name!r})" for axis, name in enumerate(each.names) if name in unsettled]
        dimensions = f"dimension{'s' * (len(axes) > 1)} {', '.join(axes)}"
        listed.append(f"input {each.value.name!r} {_shown(each.value)}: {dimensions}")
    if len(open_inputs) > _MOST_LISTED:
        listed.append(f"{len(open_inputs) - _MOST_LISTED} more inputs")
    count = len(unsettled)
    what = f"{count} unknown dimension{'s' * (count > 1)} of {'; '.join(listed)}; expected"
    if guessed is None:
        return f"{what} a size for each, as in --dim {shlex.quote(f'{unsettled[0]}=8')}, or whole shapes"
    sizes = {**guessed, **known}
    options = (
        _as_option(
            each.value.name,
            [sizes[name] if name else dim.dim_value for dim, name in zip(each.dims, each.names, strict=True)],
        )
        for each in open_inputs
    )
    return f"{what} their sizes: {' '.join(options)} would run, but may not be the sizes that it was trained for"


def _as_option(name: str, shape: Sequence[int]) -> str:
    text = f"{name}={'x'.join(map(str, shape))}"
    return f"--shape {shlex.quote(text)}"


def _shown(value: onnx.ValueInfoProto) -> str:
    """A shape as the file has it: `[?, 3, height, 640]`."""
    dims = value.type.tensor_type.shape.dim
    sizes = (str(dim.dim_value) if dim.dim_value > 0 else dim.dim_param.strip() or "?" for dim in dims)
    return f"[{', '.join(sizes)}]"
