"""Operators with subgraphs: If, Loop and Scan. Such an operator also reads what its subgraphs read from outside.

A subgraph sees every tensor around it by name, besides its own inputs. So an operator may read more than the inputs
that it lists, and to rename a tensor is to rename it in subgraphs too. Names defined in a subgraph are local to it. An
operator with subgraphs counts as one operator, whatever is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx


def new_name(wish: str, taken: set[str]) -> str:
    """`wish`, with a number appended if that name is taken. The new name is added to `taken`."""
    name, number = wish, 1
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    taken.add(name)
    return name


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes and those in their subgraphs, at any depth."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and its subgraphs, at any depth."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Inputs of a node in their positions, and behind them what the node's subgraphs read from outside, each once."""
    listed = tuple(node.input)
    captured = dict.fromkeys(name for graph in subgraphs(node) for name in _captured(graph))
    return (*listed, *(name for name in captured if name not in listed))


def rename_reads(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename the tensors that a node and its subgraphs read, by `names` (old to new), in place."""
    for position, name in enumerate(node.input):
        if name in names:
            node.input[position] = names[name]
    for graph in subgraphs(node):
        hidden = _names_within(graph).intersection(names)
        seen_inside = {old: new for old, new in names.items() if old not in hidden} if hidden else names
        for inner in graph.node:
            rename_reads(inner, seen_inside)


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename what a node reads, as `rename_reads` does, and what it makes."""
    rename_reads(node, names)
    for position, name in enumerate(node.output):
        node.output[position] = names.get(name, name)


def make_constant_outputs(graph: onnx.GraphProto) -> None:
    """Have an operator make each output that is an initialiser, so that a stage writes it, in place."""
    outputs = {value.name for value in graph.output}
    taken = {name for node in graph.node for name in node.output} | {weight.name for weight in graph.initializer}
    taken |= {value.name for value in graph.input}
    for weight in graph.initializer:
        if weight.name in outputs:
            output, weight.name = weight.name, new_name(weight.name, taken)
            for node in graph.node:
                rename_reads(node, {output: weight.name})
            for value in [value for value in graph.input if value.name == output]:
                graph.input.remove(value)
            graph.node.append(onnx.helper.make_node("Identity", [weight.name], [output]))


def name_apart(nodes: Iterable[onnx.NodeProto], around: Iterable[str]) -> None:
    """Rename what subgraphs define so that each name is unique: no other subgraph has it, nor the tensors `around`.

    Otherwise a tensor that is renamed or moved outside could be hidden, in a subgraph, by one with the same name.
    """
    nodes, seen = list(nodes), set(around)
    used = seen.union(name for node in all_nodes(nodes) for name in (*node.input, *node.output))
    _name_graphs_apart(nodes, seen, used)


def _name_graphs_apart(nodes: Iterable[onnx.NodeProto], seen: set[str], used: set[str]) -> None:
    for node in nodes:
        for graph in subgraphs(node):
            own = _names_within(graph)
            used |= own
            names = {}
            for name in sorted(own & seen):
                names[name] = new_name(f"{next(filter(None, node.output), node.op_type)}/{name}", used)
            if names:
                _rename_own(graph, names)
            seen |= own.union(names.values())
            _name_graphs_apart(graph.node, seen, used)


def _rename_own(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        rename(node, names)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)


def branch_taken(node: onnx.NodeProto, condition: onnx.TensorProto) -> onnx.GraphProto:
    """The operators and constants that make the outputs of an If whose condition is known.

    They can replace the If if the names in its branches are unique (see `name_apart`).
    """
    wanted = "then_branch" if onnx.numpy_helper.to_array(condition).any() else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    made = {name for inner in branch.node for name in inner.output if name}
    names: dict[str, str] = {}
    for result, value in zip(node.output, branch.output, strict=True):
        if result and value.name in made:
            names.setdefault(value.name, result)
    graph_proto = onnx.GraphProto()
    for inner in branch.node:
        copy = graph_proto.node.add()
        copy.CopyFrom(inner)
        rename(copy, names)
    graph_proto.initializer.extend(branch.initializer)
    for result, value in zip(node.output, branch.output, strict=True):
        if result and names.get(value.name) != result:
            graph_proto.node.add(op_type="Identity", input=[names.get(value.name, value.name)], output=[result])
    return graph_proto


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    own = _names_within(graph)
    for node in graph.node:
        yield from (name for name in reads(node) if name and name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _names_within(graph: onnx.GraphProto) -> set[str]:
    """Names that the graph defines itself, without those of its subgraphs."""
    made = {name for node in graph.node for name in node.output if name}
    return made | {value.name for value in graph.input} | {weight.name for weight in graph.initializer}
