"""A compiled model in parts, of which segments are put together: what workers read in place of the model itself.

A serialised protobuf message is merged with another by putting one behind the other. So each node is a model that has
nothing but this node, serialised once, when the model is compiled; and a segment's model is the concatenation of its
parts. A worker needs no library for that, which would be half of its start and of its private memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.model.spans import Span

PARTS_FILE: Final = "parts.msgpack"


class NodePart(msgspec.Struct, frozen=True, array_like=True):
    """A node of the graph: its layer, what it reads and makes, and itself as part of a model."""

    layer: int
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    part: bytes


class ConstantPart(msgspec.Struct, frozen=True, array_like=True):
    """A weight, whose values mostly lie in a file beside."""

    size_bytes: int
    part: bytes


class Parts(msgspec.Struct, frozen=True):
    """`header`: what every segment begins with. `inputs` and `outputs`: each tensor as an end of a segment; those
    `of_many`: of one that computes any number of frames together.
    """

    header: bytes
    nodes: tuple[NodePart, ...]
    constants: dict[str, ConstantPart]
    inputs: dict[str, bytes]
    outputs: dict[str, bytes]
    inputs_of_many: dict[str, bytes]
    outputs_of_many: dict[str, bytes]


class Boundaries:
    """What crosses the ends of stages: the tensors that runs of layers read, and those that others read of them.

    `outputs`: names of the network's own, which are read in the end.
    """

    def __init__(self, parts: Parts, outputs: Iterable[str]) -> None:
        self._nodes = parts.nodes
        self._constants = parts.constants
        self._readers: dict[str, set[int | None]] = {name: {None} for name in outputs}  # None: a layer of no stage
        for node in parts.nodes:
            for name in node.reads:
                self._readers.setdefault(name, set()).add(node.layer)

    def of(self, work: Sequence[Span]) -> tuple[list[str], list[str]]:
        """The names of what is read from outside of these layers, and of what is made for it, each in a fixed order."""
        layers = {layer for first, last in work for layer in range(first, last + 1)}
        here = [node for node in self._nodes if node.layer in layers]
        made = dict.fromkeys(name for node in here for name in node.makes)
        read = dict.fromkeys(name for node in here for name in node.reads)
        reads = [name for name in read if name not in made and name not in self._constants]
        return reads, [name for name in made if not self._readers.get(name, layers) <= layers]


def write_parts(parts: Parts, folder: Path) -> None:
    (folder / PARTS_FILE).write_bytes(msgspec.msgpack.encode(parts))


def read_parts(folder: Path) -> Parts:
    return msgspec.msgpack.decode((folder / PARTS_FILE).read_bytes(), type=Parts)
