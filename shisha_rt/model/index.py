"""What an engine's compiler tells the daemon about its form of the model.

An engine runs its own optimised graph, in which operators are fused and tensors may be in a different format. Planners
use the layers of the cleaned graph; the index says in which of these layers each node of the engine's graph runs, and
which tensors pass between layers. Along an edge the layer number never falls, so every cut is legal, except those that
a tensor whose size depends on the data would cross. Of cuts that give the same stages only one is kept. Plain values,
stored as JSON beside the optimised model.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from shisha_rt.model.spans import Span
from shisha_rt.model.split import KeptWhole, Splittable
from shisha_rt.tensors import Tensor

NO_LAYER: Final = -1
INDEX_VERSION: Final = 16  # raise it when the meaning of an index, or of a file beside it, changes

Form = Literal["prepacked", "external", "as_is", "unoptimised"]
"""What stages are cut from: the optimised graph, with its weights prepacked or `external`; or the cleaned graph, which
each stage has optimised for itself (`as_is`) or not at all.
"""

FORM_EFFECT: Final = MappingProxyType(
    {
        "prepacked": "weights laid out for the engine's kernels, one copy for all stages",
        "external": "each stage copies its weights: private memory, slower builds",
        "as_is": "each stage copies its weights and is optimised when it is built: private memory, slower builds, "
        "nothing fused across a cut",
        "unoptimised": "each stage copies its weights and runs operator by operator: private memory, slower frames",
    }
)
"""What each form means for stages, in words."""


class Crossing(msgspec.Struct, frozen=True):
    """A tensor that layer `made` makes and the later layers `readers` (ascending, at least one) read."""

    tensor: Tensor
    made: int
    readers: tuple[int, ...]

    @property
    def last_read(self) -> int:
        return self.readers[-1]


class ModelIndex(msgspec.Struct, frozen=True):
    """`node_layers[i]`: the layer in which node i runs, in the graph that stages are cut from.

    `legal_cuts`: cut c lies between layers c and c+1; of cuts that separate the nodes alike only one. `crossing`: every
    tensor that one layer makes and a later one reads, in the order in which they are made, except those with open axes,
    which no legal cut separates from a reader. `splits`: how groups of layers may be split; `kept_whole`: which may
    not, and why. `inner`: buffers for tensors that shards make and that do not pass between layers, partial sums
    included.

    `batch_axes`: the batch axis of each tensor whose frames can lie one after another in memory. `mixing` (layers,):
    why a layer computes one frame at a time, empty if it can compute a batch; `tied`: groups of layers that compute
    batches in one stage or not at all; `whole`: why no request may have several frames, empty if it may.

    `input_readers` (inputs,): the layers that read each input, ascending; `output_makers` (outputs,): the layer that
    makes each output, `NO_LAYER` for an input that is returned as it is.
    """

    engine: str
    form: Form
    layer_count: int
    legal_cuts: tuple[int, ...]
    node_layers: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    crossing: tuple[Crossing, ...]
    splits: tuple[Splittable, ...] = ()
    kept_whole: tuple[KeptWhole, ...] = ()
    inner: tuple[Tensor, ...] = ()
    input_readers: tuple[tuple[int, ...], ...] = ()
    output_makers: tuple[int, ...] = ()
    batch_axes: dict[str, int] = {}
    mixing: tuple[str, ...] = ()
    tied: tuple[tuple[int, ...], ...] = ()
    whole: str = "it was not looked at"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that has a buffer in a slot, each once: inputs, outputs, crossing ones, and what shards make."""
        tensor_specs: dict[str, Tensor] = {}
        for spec in (*self.inputs, *self.outputs, *(entry.tensor for entry in self.crossing), *self.inner):
            tensor_specs.setdefault(spec.name, spec)  # an output's own spec comes first: it says which axes are open
        return tuple(tensor_specs.values())

    def operators_of(self, first: int, last: int) -> Span:
        """First and last operator of layers `first` to `last`, if stages are cut from the cleaned graph."""
        return bisect_left(self.node_layers, first), bisect_right(self.node_layers, last) - 1

    @property
    def needs(self) -> tuple[frozenset[int], ...]:
        """(layers,): the earlier layers from which each reads a tensor."""
        needed: list[set[int]] = [set() for _ in range(self.layer_count)]
        for entry in self.crossing:
            for reader in entry.readers:
                needed[reader].add(entry.made)
        return tuple(map(frozenset, needed))


def made_outputs(index: ModelIndex) -> tuple[Tensor, ...]:
    """The outputs that the network computes, without inputs that are returned as they are."""
    makers = zip(index.outputs, index.output_makers, strict=True)
    return tuple(spec for spec, layer in makers if layer != NO_LAYER)
