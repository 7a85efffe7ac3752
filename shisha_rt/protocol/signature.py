"""A model's inputs and outputs, and the check of a request's names, datatypes and shapes against them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

import msgspec

from shisha_rt.errors import Error
from shisha_rt.model.graph import Graph, Tensor
from shisha_rt.model.input_sizes import shapes_in_words
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import DescribedTensor


@dataclass(frozen=True, slots=True)
class Signature:
    """A model's inputs and outputs, in the model's own order.

    `shapes`: if the model is served in several shapes (layouts), its inputs in each layout. An axis of `inputs` and
    `outputs` whose size differs between layouts is open. `usual`: name, shape, datatype and bytes of each input in
    nearly every request; None if there are several layouts. `sizes` (layouts, inputs): bytes.

    `most_frames`: the most frames in a request; its tensors have them one after the other along the first axis.
    `one_frame`: the reason why `most_frames` is 1, if there is one.
    """

    model_name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    shapes: tuple[tuple[Tensor, ...], ...] = ()
    most_frames: int = 1
    one_frame: str = ""
    version: str = "1"
    usual: list[tuple[str, tuple[int, ...], str, int]] | None = field(init=False, repr=False, compare=False)
    sizes: list[list[int]] = field(init=False, repr=False, compare=False)
    output_names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inputs = [(tensor.name, tensor.shape, tensor.datatype, tensor.size_bytes) for tensor in self.inputs]
        usual = None if self.shapes else inputs
        object.__setattr__(self, "usual", usual)
        object.__setattr__(self, "sizes", [[tensor.size_bytes for tensor in tensors] for tensors in self.each])
        object.__setattr__(self, "output_names", tuple(tensor.name for tensor in self.outputs))

    @classmethod
    def of(
        cls, model_name: str, graphs: Sequence[Graph], most_frames: int = 1, one_frame: str = "", version: str = "1"
    ) -> Signature:
        """Signature of a model. `graphs`: the model's graph in each layout."""
        inputs, outputs = (
            tuple(starmap(_in_all, zip(*ends, strict=True)))
            for ends in ([graph.inputs for graph in graphs], [graph.outputs for graph in graphs])
        )
        shapes = tuple(graph.inputs for graph in graphs) if len(graphs) > 1 else ()
        return cls(model_name, inputs, outputs, shapes, most_frames, one_frame, version)

    @property
    def each(self) -> tuple[tuple[Tensor, ...], ...]:
        """The inputs in each layout, of which there is at least one."""
        return self.shapes or (self.inputs,)

    def number_of(self, shapes: Sequence[tuple[int, ...]]) -> int | None:
        """The layout whose inputs have exactly `shapes`, given in the model's order; None if there is none."""
        for number, inputs in enumerate(self.each):
            if all(tensor.shape == shape for tensor, shape in zip(inputs, shapes, strict=True)):
                return number
        return None

    def layout_of(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        """The layout that inputs of these `shapes`, in the sender's order, fit, and the number of frames in them.

        Raises `InvalidArgument` if the shapes fit no layout, or hold too many frames.
        """
        layout = self.number_of([shapes[tensor.name] for tensor in self.inputs])
        if layout is not None:
            return layout, 1
        for layout, inputs in enumerate(self.each):
            counts = {_frames(tensor.shape, shapes[tensor.name]) for tensor in inputs}
            if len(counts) == 1 and (frames := counts.pop()) > 1:
                self._check_frames(frames)
                return layout, frames
        raise self._not_served(shapes)

    def _not_served(self, shapes: Mapping[str, tuple[int, ...]]) -> ShishaError:
        expected = {tensor.name: list(tensor.shape) for tensor in self.inputs if not tensor.open_axes}
        for i, (name, shape) in enumerate(shapes.items()):
            if list(shape) != expected.get(name, list(shape)):
                where = tensor_at("inputs", i, name)
                return error_for(Error.WRONG_SHAPE, f"{where}: shape {as_sent(list(shape))}; expected {expected[name]}")
        given = as_sent(shapes_in_words({tensor.name: shapes[tensor.name] for tensor in self.inputs}))
        served = ", ".join(shapes_in_words({tensor.name: tensor.shape for tensor in tensors}) for tensors in self.each)
        message = f"inputs: shapes {given} are not served; expected one of {_plain(served)}"
        return error_for(Error.WRONG_SHAPE, message)

    def _check_frames(self, frames: int) -> None:
        if self.most_frames == 1:
            why = f", as {_plain(self.one_frame)}" if self.one_frame else ""
            raise error_for(Error.WRONG_SHAPE, f"inputs: {frames} frames; expected one{why}")
        if frames > self.most_frames:
            raise error_for(
                Error.WRONG_SHAPE, f"inputs: {frames} frames; expected at most {self.most_frames} in a request"
            )

    @property
    def has_batches(self) -> bool:
        """Whether requests may have several frames, and every tensor's first axis is the batch axis, and only that."""
        return self.most_frames > 1 and all(tensor.shape[:1] == (1,) for tensor in (*self.inputs, *self.outputs))


def _frames(shape: tuple[int, ...], given: tuple[int, ...]) -> int:
    """The number of frames of `shape` along the first axis of a tensor of shape `given`; 0 if not a whole number."""
    if not shape or len(shape) != len(given) or shape[1:] != given[1:] or not shape[0] or given[0] % shape[0]:
        return 0
    return given[0] // shape[0]


def _in_all(first: Tensor, *others: Tensor) -> Tensor:
    """A tensor of all layouts: axes whose sizes differ are open."""
    differ = {axis for axis, size in enumerate(first.shape) if any(other.shape[axis] != size for other in others)}
    return msgspec.structs.replace(
        first, open_axes=tuple(sorted(differ.union(first.open_axes, *(other.open_axes for other in others))))
    )


def arrange(headers: Sequence[DescribedTensor], signature: Signature) -> tuple[int, int, list[int]]:
    """Return the layout, the number of frames, and for each of the model's inputs the index of its header.

    Checks names, datatypes and shapes. Raises `InvalidArgument`.
    """
    expected = {tensor.name: tensor for tensor in signature.inputs}
    indices: dict[str, int] = {}
    for i, header in enumerate(headers):
        where = f"inputs[{i}]"
        if header.name not in expected:
            raise error_for(
                Error.UNKNOWN_TENSOR,
                f"{where}: the model has no input {as_sent(header.name)}; expected {_names(expected)}",
            )
        if header.name in indices:
            raise error_for(
                Error.REPEATED_TENSOR, f"{where}: input {as_sent(header.name)} is given twice; expected it once"
            )
        datatype = expected[header.name].datatype
        if header.datatype != datatype:
            where = tensor_at("inputs", i, header.name)
            raise error_for(Error.WRONG_DATATYPE, f"{where}: datatype {as_sent(header.datatype)}; expected {datatype}")
        indices[header.name] = i
    missing = [name for name in expected if name not in indices]
    if missing:
        raise error_for(
            Error.MISSING_TENSOR, f"inputs: input {as_sent(missing[0])} is missing; expected {_names(expected)}"
        )
    layout, frames = signature.layout_of({header.name: header.shape for header in headers})
    return layout, frames, [indices[name] for name in expected]


def check_outputs(names: Sequence[str], signature: Signature) -> tuple[str, ...]:
    """Return `names`. Raises `InvalidArgument` unless each is the name of an output and none is repeated."""
    for i, name in enumerate(names):
        if name not in signature.output_names:
            expected = _names(signature.output_names)
            raise error_for(
                Error.UNKNOWN_TENSOR, f"outputs[{i}]: the model has no output {as_sent(name)}; expected {expected}"
            )
    if len(set(names)) != len(names):
        raise error_for(Error.REPEATED_TENSOR, "outputs: an output is given twice; expected each once")
    return tuple(names)


def tensor_at(ends: str, i: int, name: str) -> str:
    return f"{ends}[{i}] {as_sent(name)}"


_SHOWN_CHARACTERS: Final = 80


def as_sent(value: object) -> str:
    """`value` as a client sent it, made safe for one line of a log: printable ASCII and not long."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _plain(text: str) -> str:
    """`text` in printable ASCII, as names of a model may be anything."""
    return text.encode("ascii", "backslashreplace").decode()


def _names(names: Sequence[str] | Mapping[str, object]) -> str:
    return as_sent(list(names))
