"""What becomes of a run of operators that is split: shards, each a little graph of its own, and a join.

Tensors of run time keep their names in each shard; only shapes differ. A constant of which a shard has a slice has a
name of its own there. Partial sums are called `tensor#part`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shisha_rt.model.graph import Tensor
from shisha_rt.model.split import Axis


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
        """The shape of this slice of a tensor of shape `whole`."""
        return (*whole[: self.axis], self.count, *whole[self.axis + 1 :])

    def within(self, other: Slice | None) -> Slice:
        """The same positions of a tensor that is itself a slice, on the same axis; None: of the whole."""
        return self if other is None else Slice(self.axis, self.first - other.first, self.count)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A tensor or constant of the graph, or a slice of it.

    `blocked`: it lies in memory as ONNX Runtime's blocked formats do, [N][C/b][H][W][b] of a tensor of run time and
    [O/b][I/b][H][W][b][b] of a weight, whatever its shape says. Slices of the first axis of two that are blocked are
    as those of a plain tensor, as long as they are multiples of the block.
    """

    name: str
    slice: Slice | None = None
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class ShardOperator:
    """Operator `index` of the graph as a shard has it: the names that it reads and makes there, '' for none.

    `attributes` are those that change or come to it, `without` those that go. `kind`: the type that it has instead of
    its own, of ONNX's own operators; '' for its own.
    """

    index: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, int | tuple[int, ...]]
    without: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Crop:
    """A slice of a tensor of the shard, under a name of its own: where two need more or less of one tensor.

    `blocked`: as of an `Excerpt`, and the slice is one of rows: it is taken between two changes of shape, from which
    tensors called `unfolded` and `folded` come.
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
    """`steps` in topological order; each but a blocked `Crop`, which is three, is one operator.

    `reads` and `makes`: what of which tensor of the graph comes in and goes out. `tensors`: those of run time, by name,
    in the shapes that they have here. `constants`: by name, what of the graph's each is. `vectors`: new constants of
    whole numbers (shapes); `zeros`: new ones of a single zero, and their datatype.
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
    """`tensor`, which operator `index` makes, is the sum of `parts`, under `activation` ('': none) of that operator."""

    index: int
    tensor: str
    parts: tuple[str, ...]
    activation: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """The rest: first the sum, if there is one, then `operators`, whole, in topological order.

    `reads` and `makes`: names of tensors of run time.
    """

    sum: PartialSum | None
    operators: tuple[int, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return self.sum is None and not self.operators


@dataclass(frozen=True, slots=True)
class SplitRun:
    """A run of operators in shards, one for each of `shares` (units of `axis`), and what is left when they are done."""

    axis: Axis
    shares: tuple[int, ...]
    shards: tuple[Shard, ...]
    join: Join
