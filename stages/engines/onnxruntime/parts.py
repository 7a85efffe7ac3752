"""A compiled model in parts, from which segments are assembled: workers read them instead of the model itself.

Serialised protobuf messages are merged by concatenation. When the model is compiled, each node is serialised once, as a
model with this node alone; a segment's model is the concatenation of its parts. So a worker does not need `onnx`, which
would take half of its start time and of its private memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.model.spans import Span

PARTS_FILE: Final = "parts.msgpack"


class NodePart(msgspec.Struct, frozen=True, array_like=True):
    """A node of the graph: its layer, the tensors that it reads and makes, and its serialised `part` of a model."""

    layer: int
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    part: bytes


class ConstantPart(msgspec.Struct, frozen=True, array_like=True):
    """A weight, whose values are mostly in a separate file."""

    size_bytes: int
    part: bytes


class Parts(msgspec.Struct, frozen=True):
    """`header`: the beginning of every segment. `inputs` and `outputs`: each tensor as an input or output of a segment;
    `inputs_of_many` and `outputs_of_many`: of a segment that computes batches of any size.
    """

    header: bytes
    nodes: tuple[NodePart, ...]
    constants: dict[str, ConstantPart]
    inputs: dict[str, bytes]
    outputs: dict[str, bytes]
    inputs_of_many: dict[str, bytes]
    outputs_of_many: dict[str, bytes]


class Boundaries:
    """Tensors that enter and leave stages: those that runs of layers read from others, and those that others read.

    `outputs`: names of the network's outputs, which count as read outside of all stages.
    """

    def __init__(self, parts: Parts, outputs: Iterable[str]) -> None:
        self._nodes = parts.nodes
        self._constants = parts.constants
        self._readers: dict[str, set[int | None]] = {name: {None} for name in outputs}  # None: outside of all stages
        for node in parts.nodes:
            for name in node.reads:
                self._readers.setdefault(name, set()).add(node.layer)

    def of(self, work: Sequence[Span]) -> tuple[list[str], list[str]]:
        """Names of tensors that these layers read from outside, and that they make for it; each in a fixed order."""
        here = self.nodes(work)
        layers = {node.layer for node in here}
        made = dict.fromkeys(name for node in here for name in node.makes)
        read = dict.fromkeys(name for node in here for name in node.reads)
        reads = [name for name in read if name not in made and name not in self._constants]
        return reads, [name for name in made if not self._readers.get(name, layers) <= layers]

    def nodes(self, work: Sequence[Span]) -> list[NodePart]:
        layers = {layer for first, last in work for layer in range(first, last + 1)}
        return [node for node in self._nodes if node.layer in layers]


def write_parts(parts: Parts, folder: Path) -> None:
    (folder / PARTS_FILE).write_bytes(msgspec.msgpack.encode(parts))


def read_parts(folder: Path) -> Parts:
    return msgspec.msgpack.decode((folder / PARTS_FILE).read_bytes(), type=Parts)
