"""What an engine's compiler tells the daemon about its form of the model.

An engine runs its own optimised graph, in which operators are fused and tensors may be in another format. Planners
keep to the layers of the cleaned graph; the index says at which cuts between them the optimised graph can really be
cut, and which tensors can cross one. Plain values, kept as JSON beside the optimised model.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.graph.datatypes import size_bytes

FILE_NAME: Final = "index.json"


class TensorSpec(msgspec.Struct, frozen=True):
    """A tensor of the optimised graph, by the engine's name for it."""

    name: str
    shape: tuple[int, ...]
    datatype: str

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.datatype, self.shape)


class Crossing(msgspec.Struct, frozen=True):
    """A tensor that layer `made` makes and layer `last_read` is the last to read, with a legal cut between."""

    tensor: TensorSpec
    made: int
    last_read: int


class ModelIndex(msgspec.Struct, frozen=True):
    """`node_layers[i]` is the layer that node i of the optimised graph runs in, whatever the plan.

    `legal_cuts`: cut c lies between layers c and c+1. `crossing`: every tensor that can cross one, in the order in
    which they are made; a tensor that never crosses is never in the arena.
    """

    engine: str
    layer_count: int
    legal_cuts: tuple[int, ...]
    node_layers: tuple[int, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    crossing: tuple[Crossing, ...]

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Every tensor that has room in a slot, each once: inputs, outputs, crossing ones."""
        crossing = (entry.tensor for entry in self.crossing)
        return tuple({spec.name: spec for spec in (*self.inputs, *self.outputs, *crossing)}.values())

    def only_crossing_at(self, cuts: Collection[int]) -> set[str]:
        """Names of the tensors, inputs and outputs apart, that cross one of `cuts`."""
        ends = {spec.name for spec in (*self.inputs, *self.outputs)}
        return {
            entry.tensor.name
            for entry in self.crossing
            if entry.tensor.name not in ends and any(entry.made <= cut < entry.last_read for cut in cuts)
        }


def write_index(index: ModelIndex, folder: Path) -> None:
    (folder / FILE_NAME).write_bytes(msgspec.json.encode(index))


def read_index(folder: Path) -> ModelIndex:
    return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=ModelIndex)
