"""How far a split reaches: which operators of a run stay in the shards, and how shards share each tensor.

From the heavy operator on, an operator stays in the shards as long as each shard can make its share of the output from
its shares of the inputs. An operator that needs all of a shared tensor is left to the join, with all that depend on it.
What comes before the heavy operator is computed in each shard, as far as the shard needs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.heavy import HEAVY
from shisha_rt.model.rounding import DEQUANTIZE
from shisha_rt.model.shards.blocked import BLOCK, NCHWC
from shisha_rt.model.shards.local import CONVOLVE, POOLING, PRODUCTS, carried, contraction, needs_of
from shisha_rt.model.shards.shards import Slice
from shisha_rt.model.split import Axis

ACTIVATIONS: Final = ("Clip", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Tanh")
"""Activations that engines fuse into a heavy operator and that can follow a sum instead."""

_UNITS: Final[Mapping[Axis, str]] = {"channels": "output channels", "inputs": "input channels"}
"""What an axis divides, if its name does not say it."""

State: TypeAlias = tuple[int, int]
"""The axis along which shards share a tensor, and the number of its positions for each unit (1 if rows are shared)."""


class NotSplit(ValueError):
    """A run of operators cannot be split; the message says why in one line."""


def course_of(graph: Graph, operators: Sequence[int], axis: Axis) -> Course:
    """How a run of operators, in topological order, is split along an axis. Raises NotSplit."""
    course = Course(graph, axis)
    for index in operators:
        course.step(index)
    course.end()
    return course


@dataclass(slots=True)
class Course:
    """One pass over a run of operators, in its order, and what it found.

    `before`: operators before the heavy one; `sharded`: those of the shards from there on; `late`: the join's.
    `states`: how shards share each tensor. `partial`: the operator of whose result each shard makes a partial sum.
    There are `units` in all; shares are multiples of `block`.
    """

    graph: Graph
    axis: Axis
    units: int = 0
    block: int = 1
    before: list[int] = field(default_factory=list)
    sharded: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)
    partial: int | None = None
    _needs_all: set[str] = field(default_factory=set)
    _why_late: str = ""

    @property
    def in_shards(self) -> list[int]:
        """The operators from the heavy one on that shards compute, wholly or for a partial sum; ascending."""
        return sorted(self.sharded if self.partial is None else [*self.sharded, self.partial])

    def step(self, index: int) -> None:
        operator = self.graph.operators[index]
        is_heavy = operator.op_type in HEAVY and not self._is_light(operator)
        positions = [position for position, name in enumerate(operator.inputs) if name in self.states]
        if not self._needs_all.isdisjoint(operator.inputs):
            self._put_off(index, self._why_late)
        elif is_heavy and not any(position < 2 for position in positions):
            self._split(index, positions)
        elif not positions:
            self.before.append(index)
        elif (state := self._after(operator, positions)) is not None:
            self._share(index, state)
        elif is_heavy and self._can_sum(operator, positions):
            self._sum(index)
        else:
            reason = _refusal(self.graph, operator, "inputs") if is_heavy and self.axis != "rows" else ""
            whole = "channels" if self.axis == "groups" else self.axis
            self._put_off(index, f"{_called(operator)} {reason or f'needs all {whole}'}")

    def end(self) -> None:
        """Settle units and blocks. Raises NotSplit."""
        if not self.units:
            raise NotSplit("there is no convolution or matrix product")
        self.block = self._block()
        if self.axis == "rows":
            self.units = self._fewest_rows()
        if self.units <= self.block:
            in_blocks = f" in blocks of {self.block}" if self.block > 1 else ""
            raise NotSplit(f"{self.units} {_UNITS.get(self.axis, self.axis)} are too few to share{in_blocks}")
        for name in self.states:
            if self.graph.tensors[name].open_axes:
                raise NotSplit(f"the size of {name!r} depends on the data")

    def _split(self, index: int, positions: Sequence[int]) -> None:
        """Split a heavy operator whose operands are not shared; an added tensor may be. Raises NotSplit."""
        graph, axis = self.graph, self.axis
        operator = graph.operators[index]
        reason = _refusal(graph, operator, axis)
        if reason:
            raise NotSplit(f"{_called(operator)} {reason}")
        if axis == "inputs":
            if self.partial is not None:
                raise NotSplit(f"{_called(operator)} is a second one: only one can be split by its inputs")
            _, weights = contraction(graph, operator, 0, 1)
            self.units = graph.tensor(operator.inputs[1]).shape[weights.axis]
            self._sum(index)
            return
        state, units = _first_state(graph, operator, axis)
        if self.units and (units != self.units or self.partial is not None) and axis != "rows":
            what = f"has {units} {_UNITS.get(axis, axis)}, what is split before it {self.units}"
            raise NotSplit(f"{_called(operator)} {what}")
        if any(self.states[operator.inputs[position]] != state for position in positions):
            raise NotSplit(f"{_called(operator)} adds what is shared otherwise")
        if axis == "rows" and units < 2:
            raise NotSplit(f"{_called(operator)} has one row")
        self.units = self.units or units
        self._share(index, state)

    def _share(self, index: int, state: State) -> None:
        self.states[self.graph.operators[index].outputs[0]] = state
        self.sharded.append(index)

    def _sum(self, index: int) -> None:
        """Have each shard make a partial sum of an operator's result."""
        self.partial, operator = index, self.graph.operators[index]
        self._needs_all.update(operator.outputs)
        self._why_late = f"{_called(operator)} is a sum over all of them"

    def _put_off(self, index: int, reason: str) -> None:
        operator = self.graph.operators[index]
        if operator.op_type in HEAVY and not _is_scaling(self.graph, operator):
            is_own = reason.startswith(_called(operator))
            raise NotSplit(reason if is_own else f"{_called(operator)} comes behind: {reason}")
        self._why_late = reason
        self.late.append(index)
        self._needs_all.update(filter(None, operator.outputs))

    def _after(self, operator: Operator, positions: Sequence[int]) -> State | None:
        """How shards share the operator's result; None if it needs all of a tensor that they share."""
        graph = self.graph
        if not operator.outputs[0]:
            return None
        states = {carried(graph, operator, at, *self.states[operator.inputs[at]]) for at in positions}
        if len(states) != 1:
            return None
        (state,) = states
        if state is None:
            return None
        axis, unit = state
        made = graph.tensor(operator.outputs[0]).shape
        if not 0 <= axis < len(made):  # the output has fewer axes than the input
            return None
        if self.axis == "rows" and (made[axis] < 2 or unit > 1):
            return None
        slides = axis > 1 and operator.op_type in CONVOLVE | POOLING
        # Channels that a Transpose has made rows: of fewer rows the last shares would have none.
        if slides and self.axis != "rows" and made[axis] < graph.tensor(operator.inputs[0]).shape[axis]:
            return None
        blocks = BLOCK if self.axis != "rows" and self._touches_blocks(operator) and unit % BLOCK else 1
        needs = needs_of(graph, operator, Slice(axis, 0, min(made[axis], unit * blocks)))
        if needs is None:
            return None
        slices = [(needs.inputs[at], self.states[operator.inputs[at]][0]) for at in positions]
        return state if all(part is not None and part.axis == axis for part, axis in slices) else None

    def _fewest_rows(self) -> int:
        """Fewest rows among the tensors that shards hand on: so each shard can have some rows of every one."""
        here = {*self.sharded}
        shapes = {name: self.graph.tensors[name].shape for name in self.states}
        made = [name for name in self.states if self.graph.is_needed_beyond(name, here)]
        return min((shapes[name][self.states[name][0]] for name in made), default=0)

    def _is_light(self, operator: Operator) -> bool:
        """Whether it counts as light although its type is heavy: it only scales channels."""
        return self.axis not in ("groups", "rows") and _is_scaling(self.graph, operator)

    def _touches_blocks(self, operator: Operator) -> bool:
        return not self.graph.blocked.isdisjoint((*operator.inputs, *operator.outputs))

    def _can_sum(self, operator: Operator, positions: Sequence[int]) -> bool:
        """Whether what shards share is the inner dimension of this heavy operator's first operand, and nothing else."""
        if self.partial is not None or self.axis == "rows" or [*positions] != [0]:
            return False
        if _refusal(self.graph, operator, "inputs"):
            return False
        axis, unit = self.states[operator.inputs[0]]
        left, _ = contraction(self.graph, operator, 0, 1)
        size = self.graph.tensor(operator.inputs[0]).shape[axis]
        return axis == left.axis and abs(unit * self.units - size) < BLOCK * unit

    def _block(self) -> int:
        """The smallest number of units whose multiples cut no block of a blocked tensor."""
        if self.axis == "rows":
            return 1
        units = [unit for name, (_, unit) in self.states.items() if name in self.graph.blocked]
        if self.axis == "inputs" and self.partial is not None and self.graph.operators[self.partial].domain == NCHWC:
            units.append(1)
        for index in self.sharded:
            if self._touches_blocks(self.graph.operators[index]):
                units.append(self.states[self.graph.operators[index].outputs[0]][1])
        return math.lcm(*(BLOCK // math.gcd(BLOCK, unit) for unit in units))


def _called(operator: Operator) -> str:
    return f"{operator.op_type} {operator.name!r}" if operator.name else operator.op_type


def _is_scaling(graph: Graph, operator: Operator) -> bool:
    """Whether the operator only multiplies each channel by a factor: engines make this of a BatchNormalization."""
    if operator.op_type not in CONVOLVE:
        return False
    filters, channels, *kernel = graph.tensor(operator.inputs[1]).shape
    return operator.integer("group", 1) == filters and channels == 1 and math.prod(kernel) == 1


def _refusal(graph: Graph, operator: Operator, axis: Axis) -> str:
    """Why a heavy operator cannot be split along an axis by itself; '' if it can."""
    kind = operator.op_type
    convolves = kind in CONVOLVE or kind == "ConvTranspose"
    if not convolves and kind not in PRODUCTS:
        return "works on integers: it is not split"
    if operator.inputs[1] not in graph.constants:
        maker = graph.producer.get(operator.inputs[1])
        is_quantised = maker is not None and graph.operators[maker].op_type == DEQUANTIZE
        what = "has weights of integers" if is_quantised else "has no constant weights"
        return f"{what}: it is not split"
    if operator.attributes.get("channels_last", 0):
        return "has its channels last: it is not split"
    groups = operator.integer("group", 1) if convolves else 1
    if axis in ("channels", "groups") and not convolves:
        return f"has no {axis}: a product has columns, inputs and rows"
    if axis == "columns" and convolves:
        return "has no columns: a convolution has channels, inputs, groups and rows"
    if axis in ("channels", "inputs") and groups > 1:
        return f"has {groups} groups: they are what can be shared"
    if axis == "groups" and (why := _why_no_groups(graph, operator, groups)):
        return why
    if axis == "inputs":
        if operator.texts.get("activation", "") not in ("", *ACTIVATIONS):
            return f"has {operator.texts['activation']} fused into it, which is not known to follow a sum"
        # A blocked convolution reads a plain image if that has fewer channels than a block.
        is_plain = operator.op_type == "Conv" and operator.inputs[0] not in graph.blocked
        return "reads fewer channels than a block" if operator.domain == NCHWC and is_plain else ""
    state = _first_state(graph, operator, axis)[0]
    made_shape = graph.tensor(operator.outputs[0]).shape
    if not 0 <= state[0] < len(made_shape):
        return f"has no {_UNITS.get(axis, axis)}"
    blocks = BLOCK if operator.domain == NCHWC and axis != "rows" else 1
    wanted = Slice(state[0], 0, min(made_shape[state[0]], state[1] * blocks))
    if needs_of(graph, operator, wanted) is None:
        return f"cannot make some of its {_UNITS.get(axis, axis)} alone"
    return ""


def _why_no_groups(graph: Graph, operator: Operator, groups: int) -> str:
    """Why its groups cannot be shared; '' if they can."""
    if groups == 1:
        return "has one group"
    of_group = graph.tensor(operator.outputs[0]).shape[1] // groups
    if operator.domain == NCHWC and of_group % BLOCK and of_group > 1:
        return f"has groups of {of_group} channels, no multiple of the block of {BLOCK}"
    return ""


def _first_state(graph: Graph, operator: Operator, axis: Axis) -> tuple[State, int]:
    """How shards share a heavy operator's result, and the number of units."""
    made = graph.tensor(operator.outputs[0]).shape
    if axis == "columns":
        return (len(made) - 1, 1), made[-1] if made else 0
    if axis == "groups":
        of_group = made[1] // operator.integer("group", 1)
        return (1, of_group), made[1] // of_group
    if axis == "channels":
        return (1, 1), made[1]
    at = len(made) - 2 if operator.op_type in PRODUCTS else 2
    return (at, 1), made[at] if 0 <= at < len(made) else 0
