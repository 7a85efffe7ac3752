"""Shards and joins as graphs of their own, with their shapes, for cost formulas and planners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.shards.rewrite import split_run
from shisha_rt.model.shards.shards import Crop, Shard, SplitRun, Step, part_of
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split


def shard_graph(graph: Graph, split: SplitRun, part: int) -> Graph:
    shard = split.shards[part]
    constants = {
        name: part_of(graph.constants[constant.name], constant.slice, name)
        for name, constant in shard.constants.items()
    }
    constants |= {name: Tensor(name, (len(values),), "INT64") for name, values in shard.vectors.items()}
    constants |= {name: Tensor(name, (1,), datatype) for name, datatype in shard.zeros.items()}
    return Graph(
        name=graph.name,
        operators=tuple(operator for step in shard.steps for operator in _operators(graph, step)),
        inputs=tuple(shard.tensors[excerpt.name] for excerpt in shard.reads),
        outputs=tuple(shard.tensors[excerpt.name] for excerpt in shard.makes),
        tensors={**shard.tensors, **_between(shard)},
        constants=constants,
    )


def join_graph(graph: Graph, split: SplitRun, behind: Sequence[int] = ()) -> Graph:
    """The join as a graph of its own, with the operators `behind` it that are in the same stage."""
    join = split.join
    here = (*join.operators, *behind)
    tensors = dict(graph.tensors)
    operators = [graph.operators[index] for index in here]
    if join.sum is not None:
        total = graph.tensors[join.sum.tensor]
        before = f"{total.name}/sum" if join.sum.activation else total.name
        tensors |= {name: Tensor(name, total.shape, total.datatype) for name in (*join.sum.parts, before)}
        added = [Operator(f"{total.name}/sum", "Sum", "", join.sum.parts, (before,), {})]
        if join.sum.activation:
            kind = join.sum.activation
            added.append(Operator(f"{total.name}/{kind}", kind, "", (before,), (total.name,), {}))
        operators = [*added, *operators]
    made = dict.fromkeys(name for operator in operators for name in operator.outputs if name)
    read = dict.fromkeys(name for operator in operators for name in operator.inputs)
    inputs = [name for name in read if name in tensors and name not in made]
    outputs = [name for name in made if name in graph.tensors and graph.is_needed_beyond(name, {*here})]
    return replace(graph, tensors=tensors).part(operators, inputs, outputs)


def stage_graph(graph: Graph, node_layers: Sequence[int], split: Split, work: Sequence[Span]) -> Graph:
    """What a stage with a split computes: a shard, or the join and the layers behind it.

    `node_layers` (operators,): the layer of each. Raises ValueError for what cannot be split.
    """
    run = split_run(graph, operators_within(node_layers, [split.span]), split.axis, split.shares)
    if split.joins:
        return join_graph(graph, run, operators_behind(node_layers, split, work))
    return shard_graph(graph, run, split.part)


def operators_within(node_layers: Sequence[int], work: Sequence[Span]) -> list[int]:
    return [
        operator for operator, layer in enumerate(node_layers) if any(first <= layer <= last for first, last in work)
    ]


def operators_behind(node_layers: Sequence[int], split: Split, work: Sequence[Span]) -> list[int]:
    """Operators of a joining stage's layers that are not split."""
    first, last = split.span
    return [operator for operator in operators_within(node_layers, work) if not first <= node_layers[operator] <= last]


def _between(shard: Shard) -> dict[str, Tensor]:
    """The tensors inside blocked crops, in the right size, though not in their real shape."""
    between = {}
    for step in shard.steps:
        if isinstance(step, Crop) and step.blocked:
            between[step.unfolded] = structs.replace(shard.tensors[step.source], name=step.unfolded)
            between[step.folded] = structs.replace(shard.tensors[step.result], name=step.folded)
    return between


def _operators(graph: Graph, step: Step) -> tuple[Operator, ...]:
    if isinstance(step, Crop):
        return _crop(step)
    operator = graph.operators[step.index]
    attributes = {
        name: value for name, value in {**operator.attributes, **step.attributes}.items() if name not in step.without
    }
    texts = {name: value for name, value in operator.texts.items() if name not in step.without}
    kind, domain = (step.kind, "") if step.kind else (operator.op_type, operator.domain)
    return (Operator(operator.name, kind, domain, step.inputs, step.outputs, attributes, texts),)


def _crop(step: Crop) -> tuple[Operator, ...]:
    if not step.blocked:
        return (Operator(f"{step.result}/crop", "Slice", "", (step.source,), (step.result,), {}),)
    return (
        Operator(step.unfolded, "Reshape", "", (step.source,), (step.unfolded,), {}),
        Operator(step.folded, "Slice", "", (step.unfolded,), (step.folded,), {}),
        Operator(f"{step.result}/shape", "Reshape", "", (step.folded,), (step.result,), {}),
    )
