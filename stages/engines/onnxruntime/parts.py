"""A compiled model in parts, of which segments are put together: what workers read in place of the model itself.

A serialised protobuf message is merged with another by putting one behind the other. So each node is a model that has
nothing but this node, serialised once, when the model is compiled; and a segment's model is the concatenation of its
parts. A worker needs no library for that, which would be half of its start and of its private memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

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
    """`header`: what every segment begins with. `inputs` and `outputs`: each tensor as an end of a segment."""

    header: bytes
    nodes: tuple[NodePart, ...]
    constants: dict[str, ConstantPart]
    inputs: dict[str, bytes]
    outputs: dict[str, bytes]


def write_parts(parts: Parts, folder: Path) -> None:
    (folder / PARTS_FILE).write_bytes(msgspec.msgpack.encode(parts))


def read_parts(folder: Path) -> Parts:
    return msgspec.msgpack.decode((folder / PARTS_FILE).read_bytes(), type=Parts)
