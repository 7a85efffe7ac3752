"""Operators that have graphs inside: If, Loop and Scan. What those read from outside, their operator reads.

A graph inside sees every tensor around it by name, beside its own inputs. So what an operator reads is more than the
inputs that it lists, and whoever renames a tensor has to do so inside as well. Names inside are their own: an
operator with graphs is one operator, whatever is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from shisha_rt.graph.names import unused_name


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that are its attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """They, and those in graphs inside them, however deep."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """It, and those inside its operators, however deep."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Its inputs, in their positions, and behind them what its graphs read from outside, each once."""
    listed = tuple(node.input)
    captured = dict.fromkeys(name for graph in subgraphs(node) for name in _captured(graph))
    return (*listed, *(name for name in captured if name not in listed))


def rename_reads(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Have it read, inside too, the tensors that `names` maps to, in place of those that it maps."""
    for position, name in enumerate(node.input):
        if name in names:
            node.input[position] = names[name]
    for graph in subgraphs(node):
        own = _names_within(graph)
        seen_inside = {old: new for old, new in names.items() if old not in own}
        if seen_inside:
            for inner in graph.node:
                rename_reads(inner, seen_inside)


def branch_taken(node: onnx.NodeProto, condition: bool, taken: Iterable[str]) -> onnx.GraphProto:
    """What is left of an If whose condition is known: operators and constants that make its outputs.

    They can stand where the If stood: the names inside get others if they are among `taken`.
    """
    wanted = "then_branch" if condition else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    own, used = _names_within(branch), set(taken)
    names: dict[str, str] = {}
    for result, name in zip(node.output, (value.name for value in branch.output), strict=True):
        if name in own and name not in names and name not in {weight.name for weight in branch.initializer}:
            names[name] = result
    for name in sorted(own - names.keys()):
        names[name] = unused_name(f"{node.output[0]}/{name}", used) if name in used else name
        used.add(names[name])
    found = onnx.GraphProto()
    for inner in branch.node:
        copy = found.node.add()
        copy.CopyFrom(inner)
        rename_reads(copy, names)
        for position, name in enumerate(copy.output):
            copy.output[position] = names.get(name, name)
    for weight in branch.initializer:
        constant = found.initializer.add()
        constant.CopyFrom(weight)
        constant.name = names[weight.name]
    for result, value in zip(node.output, branch.output, strict=True):
        if result and names.get(value.name) != result:
            found.node.add(op_type="Identity", input=[names.get(value.name, value.name)], output=[result])
    return found


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    own = _names_within(graph)
    for node in graph.node:
        yield from (name for name in reads(node) if name and name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _names_within(graph: onnx.GraphProto) -> set[str]:
    """Of what it defines itself, graphs inside it apart."""
    made = {name for node in graph.node for name in node.output if name}
    return made | {value.name for value in graph.input} | {weight.name for weight in graph.initializer}
