"""Shards and joins as graphs of their own, in their shapes: what cost formulas and planners can read."""

from __future__ import annotations

from shisha_rt.graph.graph import Graph, Operator, Tensor
from shisha_rt.split.shards import Crop, Excerpt, SplitRun, Step


def shard_graph(graph: Graph, split: SplitRun, part: int) -> Graph:
    """A shard as a graph of its own, in its shapes."""
    shard = split.shards[part]
    constants = {name: _excerpt(graph.constants[its.name], its, name) for name, its in shard.constants.items()}
    constants |= {name: Tensor(name, (len(values),), "INT64") for name, values in shard.vectors.items()}
    constants |= {name: Tensor(name, (1,), datatype) for name, datatype in shard.zeros.items()}
    return Graph(
        name=graph.name,
        operators=tuple(_operator(graph, step) for step in shard.steps),
        inputs=tuple(shard.tensors[excerpt.name] for excerpt in shard.reads),
        outputs=tuple(shard.tensors[excerpt.name] for excerpt in shard.makes),
        tensors=shard.tensors,
        constants=constants,
    )


def join_graph(graph: Graph, split: SplitRun) -> Graph:
    """The join as a graph of its own."""
    join = split.join
    operators = [graph.operators[index] for index in join.operators]
    tensors = {name: graph.tensors[name] for name in (*join.reads, *join.makes) if name in graph.tensors}
    if join.sum is not None:
        total = graph.tensors[join.sum.tensor]
        tensors |= {name: Tensor(name, total.shape, total.datatype) for name in join.sum.parts}
        before = f"{total.name}/sum" if join.sum.activation else total.name
        tensors[before] = Tensor(before, total.shape, total.datatype)
        tensors[total.name] = total
        added = [Operator(before, "Sum", "", join.sum.parts, (before,), {})]
        if join.sum.activation:
            added.append(Operator(total.name, join.sum.activation, "", (before,), (total.name,), {}))
        operators = [*added, *operators]
    made = {name: graph.tensors[name] for operator in operators for name in operator.outputs if name in graph.tensors}
    read = dict.fromkeys(name for operator in operators for name in operator.inputs if name in graph.constants)
    return Graph(
        name=graph.name,
        operators=tuple(operators),
        inputs=tuple(tensors[name] for name in join.reads),
        outputs=tuple(graph.tensors[name] for name in join.makes),
        tensors=tensors | made,
        constants={name: graph.constants[name] for name in read},
    )


def _excerpt(tensor: Tensor, its: Excerpt, name: str) -> Tensor:
    return Tensor(name, its.slice.shape_of(tensor.shape) if its.slice else tensor.shape, tensor.datatype)


def _operator(graph: Graph, step: Step) -> Operator:
    if isinstance(step, Crop):
        return Operator(step.result, "Slice", "", (step.source,), (step.result,), {})
    its = graph.operators[step.index]
    attributes = {
        name: value for name, value in {**its.attributes, **step.attributes}.items() if name not in step.without
    }
    texts = {name: value for name, value in its.texts.items() if name not in step.without}
    kind, domain = (step.kind, "") if step.kind else (its.op_type, its.domain)
    return Operator(its.name, kind, domain, step.inputs, step.outputs, attributes, texts)
