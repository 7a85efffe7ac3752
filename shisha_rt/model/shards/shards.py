"""The result of splitting a run of operators: shards, each a small graph of its own, and a join.

Run-time tensors keep their names in each shard; only shapes differ. A slice of a constant has a new name there. Partial
sums are called `tensor#part`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shisha_rt.model.graph import Tensor


@dataclass(frozen=True, slots=True)
class Slice:
    """`count` positions of a tensor's `axis`, from `first` on; the other axes are whole."""

    axis: int
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count

    def shape_of(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        return (*whole[: self.axis], self.count, *whole[self.axis + 1 :])

    def within(self, other: Slice | None) -> Slice:
        """The same positions, counted within `other`, a slice on the same axis around them; None: the whole tensor."""
        return self if other is None else Slice(self.axis, self.first - other.first, self.count)


def part_of(tensor: Tensor, tensor_slice: Slice | None, name: str) -> Tensor:
    """A slice of a tensor, or all of it, under another name."""
    return Tensor(name, tensor_slice.shape_of(tensor.shape) if tensor_slice else tensor.shape, tensor.datatype)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A tensor or constant of the graph, or a slice of it.

    `blocked`: it lies in memory in one of ONNX Runtime's blocked formats, [N][C/b][H][W][b] for a run-time tensor and
    [O/b][I/b][H][W][b][b] for a weight, whatever its shape says. A slice of whole blocks along C (of a weight: O) lies
    in memory as in a plain tensor.
    """

    name: str
    slice: Slice | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class ShardOperator:
    """Operator `index` of the graph as it is in a shard: the names that it reads and makes there, '' for none.

    `attributes`: those changed or added; `without`: those removed. `kind`: the type of ONNX's own operators that
    replaces its type; '' if it keeps its type.
    """

    index: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | tuple[int, ...]]
    without: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Crop:
    """A slice of one of the shard's tensors, under a new name, for readers that need more or less of the tensor.

    `blocked`: as in `Excerpt`, and the slice is of rows; it is taken between two Reshapes, which add the tensors
    `unfolded` and `folded`.
    """

    source: str
    slice: Slice
    result: str
    blocked: bool = False

    @property
    def unfolded(self) -> str:
        return f"{self.result}/unfolded"

    @property
    def folded(self) -> str:
        return f"{self.result}/folded"


Step: TypeAlias = ShardOperator | Crop


@dataclass(frozen=True, slots=True)
class Shard:
    """`steps` are in topological order; each is one operator, except a blocked `Crop`, which is three.

    `reads`, `makes`: tensors of the graph, or slices of them, that the shard reads and hands on. `tensors`: run-time
    tensors by name, with their shapes in the shard. `constants`: for each name, the graph's constant or slice of one.
    `vectors`: new integer constants (shapes); `zeros`: new constants of a single zero, with their datatypes.
    """

    steps: tuple[Step, ...]
    reads: tuple[Excerpt, ...]
    makes: tuple[Excerpt, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Excerpt]
    vectors: Mapping[str, tuple[int, ...]]
    zeros: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PartialSum:
    """`tensor`, made by operator `index`, is the sum of `parts`, then that operator's `activation` ('' for none)."""

    index: int
    tensor: str
    parts: tuple[str, ...]
    activation: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """What is left when all shards are done: first the sum, if any, then `operators`, whole, in topological order."""

    sum: PartialSum | None
    operators: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        return self.sum is None and not self.operators


@dataclass(frozen=True, slots=True)
class SplitRun:
    """A run of operators in shards, one for each of `shares` (units), and the join."""

    shares: tuple[int, ...]
    shards: tuple[Shard, ...]
    join: Join
