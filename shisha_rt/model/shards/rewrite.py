"""A run of operators rewritten as shards and a join (GP, 2023: how to split a layer of a real network).

The graph is the cleaned one or an engine's optimised one. Nothing is run, so the result holds for any values. The slice
of each tensor that a shard needs is worked out backwards, from what the shard hands on to what it reads: so rows get
their halo, and operators before the heavy one compute no more than they must.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.shards.blocked import NCHWC
from shisha_rt.model.shards.course import Course, NotSplit, course_of
from shisha_rt.model.shards.local import Needs, contraction, needs_of
from shisha_rt.model.shards.shards import (
    Crop,
    Excerpt,
    Join,
    PartialSum,
    Shard,
    ShardOperator,
    Slice,
    SplitRun,
    Step,
    part_of,
)
from shisha_rt.model.spans import Span
from shisha_rt.model.split import MOST_SUMMED, Axis, Splittable, partial_name


def splittable(graph: Graph, operators: Sequence[int], first: int, last: int, axis: Axis) -> Splittable | str:
    """How `operators` (ascending), those of layers `first` to `last`, can be split along `axis`; or why they cannot."""
    try:
        course = course_of(graph, operators, axis)
        rewritten = _split(operators, course, halves(course.units, course.block))
    except NotSplit as reason:
        return str(reason)
    makes = dict.fromkeys(excerpt.name for excerpt in rewritten.shards[0].makes)
    if rewritten.join.sum is not None:
        makes = {rewritten.join.sum.tensor: None}
        sums = (partial_name(rewritten.join.sum.tensor, part) for part in range(MOST_SUMMED))
        taken = next((name for name in sums if name in graph.tensors or name in graph.constants), None)
        if taken is not None:
            return f"{taken!r} is another tensor's name, and would be that of a shard's own sum"
    return Splittable(
        first=first,
        last=last,
        axis=axis,
        units=course.units,
        block=course.block,
        makes=tuple(makes),
        summed=rewritten.join.sum is not None,
        joined=not rewritten.join.is_empty,
    )


def split_run(graph: Graph, operators: Sequence[int], axis: Axis, shares: Sequence[int]) -> SplitRun:
    """The shards that have `shares` of the units, in their order, and the join.

    In a graph with blocked formats, units are rounded up to full blocks; what `shares` lack of that goes to the last
    shard. Raises NotSplit, also for shares that do not fit.
    """
    return _split(operators, course_of(graph, operators, axis), shares)


def halves(units: int, block: int) -> tuple[int, int]:
    """Two shares, as equal as blocks allow."""
    half = max(1, units // 2 // block) * block
    return half, units - half


def _split(operators: Sequence[int], course: Course, shares: Sequence[int]) -> SplitRun:
    graph, spans = course.graph, _unit_spans(course, shares)
    join = _join(operators, course, len(spans))
    made = [name for name in course.states if graph.is_needed_beyond(name, {*course.in_shards})]
    if course.partial is not None and made:
        raise NotSplit(f"{made[0]!r} is needed beside the sum")
    shards = tuple(_ShardBuilder(course, part, span).shard(made) for part, span in enumerate(spans))
    return SplitRun(tuple(end - first for first, end in spans), shards, join)


def _unit_spans(course: Course, shares: Sequence[int]) -> list[Span]:
    """First unit and end of each share. Raises NotSplit for shares that do not fit."""
    missing = course.units - sum(shares)
    if len(shares) < 2 or min(shares) < 1 or not 0 <= missing < course.block:
        raise NotSplit(f"shares {[*shares]}, expected two or more of at least 1 that add up to {course.units}")
    off = next((share for share in shares[:-1] if share % course.block), None)
    if off is not None:
        raise NotSplit(f"a share of {off}, expected a multiple of {course.block} (only the last may be another)")
    return [*pairwise((0, *accumulate((*shares[:-1], shares[-1] + missing))))]


def _join(operators: Sequence[int], course: Course, part_count: int) -> Join:
    """The operators behind the shards, and those before the heavy one whose results are needed there or outside."""
    graph, total = course.graph, None
    if course.partial is not None:
        operator = graph.operators[course.partial]
        tensor = operator.outputs[0]
        parts = tuple(partial_name(tensor, part) for part in range(part_count))
        total = PartialSum(course.partial, tensor, parts, operator.texts.get("activation", ""))
    late, run = {*course.late}, {*operators}
    wanted: set[str] = set()
    left = []
    for index in sorted((*course.late, *course.before), reverse=True):
        outputs = [name for name in graph.operators[index].outputs if name]
        if index in late or any(name in wanted or graph.is_needed_beyond(name, run) for name in outputs):
            left.append(index)
            wanted.update(graph.operators[index].inputs)
    return Join(total, tuple(reversed(left)))


class _ShardBuilder:
    """Builds one shard: first what it needs of each tensor (backwards), then its steps."""

    def __init__(self, course: Course, part: int, span: Span) -> None:
        self._graph = course.graph
        self._course = course
        self._part = part
        self._span = span
        self._needs: dict[int, Needs] = {}
        self._held: dict[str, Slice | None] = {}  # per tensor, a slice with all that the shard needs
        self._steps: list[Step] = []
        self._constants: dict[str, Excerpt] = {}
        self._vectors: dict[str, tuple[int, ...]] = {}
        self._zeros: dict[str, str] = {}
        self._tensors: dict[str, Tensor] = {}
        self._own_names: dict[str, str] = {}  # of tensors that it holds more of than it hands on

    def shard(self, made: Sequence[str]) -> Shard:
        graph, course = self._graph, self._course
        shares = {name: self._share(name) for name in made}
        self._held.update(shares)
        here = sorted((*course.before, *course.in_shards))
        for index in reversed(here):
            self._settle(index)
        reads = tuple(
            Excerpt(name, self._held[name], name in graph.blocked)
            for name in self._held
            if name in graph.tensors and graph.producer.get(name, -1) not in self._needs
        )
        self._own_names = {name: f"{name}/more" for name, share in shares.items() if share != self._held[name]}
        for excerpt in reads:
            self._declare(excerpt.name, excerpt.slice, excerpt.name)
        for index in here:
            if index in self._needs:
                self._add(index)
        for name in self._own_names:
            self._crop(name, shares[name], name)
        makes = tuple(Excerpt(name, share, name in graph.blocked) for name, share in shares.items())
        if course.partial is not None:
            tensor = graph.operators[course.partial].outputs[0]
            makes = (*makes, Excerpt(partial_name(tensor, self._part), None, tensor in graph.blocked))
        return Shard(
            steps=tuple(self._steps),
            reads=reads,
            makes=makes,
            tensors=self._tensors,
            constants=self._constants,
            vectors=self._vectors,
            zeros=self._zeros,
        )

    def _share(self, name: str) -> Slice:
        """The shard's slice of a tensor; one with more rows than there are units is shared in proportion."""
        axis, unit = self._course.states[name]
        size, (first, end), units = self._graph.tensors[name].shape[axis], self._span, self._course.units
        if self._course.axis == "rows":
            first, end = (at * size // units for at in (first, end))
        else:
            first, end = first * unit, size if end == units else min(end * unit, size)
        return Slice(axis, first, end - first)

    def _settle(self, index: int) -> None:
        graph = self._graph
        operator = graph.operators[index]
        if index == self._course.partial:
            needs = self._summed(operator)
        elif any(name in self._held for name in operator.outputs):
            needs = self._local(operator)
        else:
            return
        self._needs[index] = needs
        for position, (name, tensor_slice) in enumerate(zip(operator.inputs, needs.inputs, strict=True)):
            if name in graph.tensors and not self._is_left_out(index, position):
                wanted = _or_whole(tensor_slice, graph.tensors[name])
                self._held[name] = self._hull(name, wanted) if name in self._held else wanted

    def _local(self, operator: Operator) -> Needs:
        """Slices that `operator` needs. An operator that cannot make its slice alone makes all of its output."""
        name = operator.outputs[0]
        wanted = self._held.get(name)
        needs = None if wanted is None else needs_of(self._graph, operator, wanted)
        if needs is not None:
            return needs
        if name in self._course.states and wanted is not None:
            raise NotSplit(f"{operator.op_type} {operator.name!r} cannot make share {self._part} of {name!r} alone")
        for other in operator.outputs:
            self._held[other] = None
        return Needs((None,) * len(operator.inputs))

    def _summed(self, operator: Operator) -> Needs:
        state = self._course.states.get(operator.inputs[0])
        if state is not None:
            share = self._share(operator.inputs[0])
            first, count = share.first, share.count
        else:
            first, count = self._span[0], self._span[1] - self._span[0]
        image, weights = contraction(self._graph, operator, first, count)
        size = self._graph.tensor(operator.inputs[0]).shape[image.axis]
        image = Slice(image.axis, first, min(image.end, size) - first)
        without = tuple(name for name in operator.texts if name.startswith("activation"))
        if without:
            without = (*without, "activation_params", "activation_alpha", "activation_beta", "activation_gamma")
        return Needs((image, weights, *(None,) * (len(operator.inputs) - 2)), {}, without)

    def _is_left_out(self, index: int, position: int) -> bool:
        """Whether to leave out the input: a bias or an added tensor is part of the first partial sum only."""
        return index == self._course.partial and position > 1 and self._part > 0

    def _hull(self, name: str, wanted: Slice | None) -> Slice | None:
        """The smallest slice that covers both what is held already and `wanted`."""
        held = self._held[name]
        if held is None or wanted is None or held.axis != wanted.axis:
            return None
        first, end = min(held.first, wanted.first), max(held.end, wanted.end)
        return _or_whole(Slice(held.axis, first, end - first), self._graph.tensors[name])

    def _add(self, index: int) -> None:
        graph, needs = self._graph, self._needs[index]
        operator = graph.operators[index]
        inputs = [
            self._input(operator, position, name, tensor_slice)
            if not self._is_left_out(index, position)
            else self._nothing(operator)
            for position, (name, tensor_slice) in enumerate(zip(operator.inputs, needs.inputs, strict=True))
        ]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [self._output(index, name) for name in operator.outputs]
        if needs.reshaped:
            inputs[1] = f"{outputs[0]}/shape"
            self._vectors[inputs[1]] = self._tensors[outputs[0]].shape
        # The engine has no FusedGemm without an activation.
        kind = "Gemm" if operator.op_type == "FusedGemm" and needs.without else ""
        self._steps.append(ShardOperator(index, tuple(inputs), tuple(outputs), needs.attributes, needs.without, kind))

    def _input(self, operator: Operator, position: int, name: str, tensor_slice: Slice | None) -> str:
        graph = self._graph
        if not name:
            return ""
        wanted = _or_whole(tensor_slice, graph.tensor(name))
        if name in graph.constants:
            own = name if wanted is None else _sliced_name(name, wanted)
            self._constants[own] = Excerpt(name, wanted, operator.domain == NCHWC and position == 1)
            return own
        if wanted == self._held[name]:
            return self._own_names.get(name, name)
        assert wanted is not None, "a shard that needs all of a tensor holds all of it"
        return self._crop(name, wanted, _sliced_name(name, wanted))

    def _nothing(self, operator: Operator) -> str:
        """Name of a zero in place of an input that is left out: older Gemm operators must have a third input."""
        if not operator.op_type.endswith("Gemm"):
            return ""
        name = f"{operator.outputs[0]}/zero"
        self._zeros[name] = self._graph.tensor(operator.outputs[0]).datatype
        return name

    def _output(self, index: int, name: str) -> str:
        if not name:
            return ""
        if index == self._course.partial:
            return self._declare(name, None, partial_name(name, self._part))
        if name not in self._held:
            return ""
        return self._declare(name, self._held[name], self._own_names.get(name, name))

    def _crop(self, name: str, wanted: Slice | None, result: str) -> str:
        assert wanted is not None, "what is cropped has an axis along which it is"
        if result in self._tensors:
            return result
        source = self._own_names.get(name, name)
        self._declare(name, wanted, result)
        is_blocked = name in self._graph.blocked and wanted.axis > 1
        self._steps.append(Crop(source, wanted.within(self._held[name]), result, is_blocked))
        return result

    def _declare(self, name: str, tensor_slice: Slice | None, own_name: str) -> str:
        """Record a tensor under its name in the shard, with its shape there; return the name."""
        self._tensors[own_name] = part_of(self._graph.tensors[name], tensor_slice, own_name)
        return own_name


def _sliced_name(name: str, tensor_slice: Slice) -> str:
    return f"{name}/{tensor_slice.axis}:{tensor_slice.first}+{tensor_slice.count}"


def _or_whole(tensor_slice: Slice | None, tensor: Tensor) -> Slice | None:
    return None if tensor_slice is None or tensor_slice.count == tensor.shape[tensor_slice.axis] else tensor_slice
