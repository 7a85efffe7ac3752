"""Which operators of the cleaned graph each node of ONNX Runtime's optimised graph stands for.

The optimiser fuses operators, reorders them and renames tensors. The names that survive are enough: fused nodes keep
the name of their last output, and a node moved to the blocked (NCHWc) format is called `<its output>_nchwc`. A tensor
from which a transposition has been moved away is named after its operator, and floats that are computed in place of
FP16 after the tensor. These give each tensor of the optimised graph its counterpart in the cleaned graph. A node covers
the cleaned operators between its inputs' counterparts and its output's. If a tensor's counterpart is unknown, the nodes
around it are taken as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import onnx

from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.subgraphs import reads

_BLOCKED_SUFFIX: Final = "_nchwc"
_CAST_PREFIX: Final = "InsertedPrecisionFreeCast_"
_NUMBER: Final = re.compile(r"_token_\d+$")
_CHANGES_OF_FORMAT: Final = ("ReorderInput", "ReorderOutput", "Transpose")
_SUMS: Final = ("Add", "Sum")


def covered_operators(graph: Graph, optimised: onnx.GraphProto) -> list[set[int]]:
    """The operators of the cleaned `graph` that each node of `optimised` covers; empty if they are unknown.

    Nodes joined by a tensor without a counterpart are taken as one.
    """
    counterpart = counterparts(graph, optimised)
    covered: list[set[int]] = [set() for _ in optimised.node]
    for group in _groups(graph, optimised, counterpart):
        operators = _operators_between(graph, [optimised.node[i] for i in group], counterpart)
        for i in group:
            covered[i] = operators
    return covered


def counterparts(graph: Graph, optimised: onnx.GraphProto) -> dict[str, str]:
    """Optimised tensor name -> cleaned tensor name, for every run-time tensor whose counterpart is known."""
    operators = {op.name: op for op in graph.operators}
    names = {tensor.name: tensor.name for tensor in graph.inputs}
    for node in optimised.node:
        made_by = _named_after(graph, operators, node.name.removesuffix(_BLOCKED_SUFFIX))
        for position, name in enumerate(node.output):
            if not name:
                continue
            tensor = _named_after(graph, operators, name)
            if tensor is not None:
                names[name] = tensor
            elif node.op_type in _CHANGES_OF_FORMAT and node.name not in operators:
                if node.input[0] in names:
                    names[name] = names[node.input[0]]
            elif node.name.endswith(_BLOCKED_SUFFIX) and made_by is not None:
                names[name] = _after_fused_tail(graph, made_by, node)
            elif node.name in operators and position < len(operators[node.name].outputs):
                names[name] = operators[node.name].outputs[position]
    return names


def _named_after(graph: Graph, operators: Mapping[str, Operator], name: str) -> str | None:
    """The cleaned tensor after which a tensor is named, which may have another format or datatype."""
    if name in graph.tensors:
        return name
    name = _NUMBER.sub("", name.removeprefix(_CAST_PREFIX))
    if name in graph.tensors:
        return name
    return operators[name].outputs[0] if name in operators else None


def _after_fused_tail(graph: Graph, tensor: str, node: onnx.NodeProto) -> str:
    """The output of a blocked Conv, into which an addition (its fourth input) and an activation may be fused."""
    if node.op_type == "Conv" and len(node.input) > 3 and node.input[3]:
        tensor = _output_of_only(graph, tensor, _SUMS) or tensor
    activation = next((a.s.decode() for a in node.attribute if a.name == "activation"), None)
    if activation is not None and graph.operators[graph.producer[tensor]].op_type != activation:
        tensor = _output_of_only(graph, tensor, (activation,)) or tensor
    return tensor


def _output_of_only(graph: Graph, tensor: str, op_types: Sequence[str]) -> str | None:
    consumers = graph.consumers.get(tensor, ())
    if len(consumers) != 1 or graph.operators[consumers[0]].op_type not in op_types:
        return None
    return graph.operators[consumers[0]].outputs[0]


def _groups(graph: Graph, optimised: onnx.GraphProto, counterpart: dict[str, str]) -> list[list[int]]:
    """Groups of nodes, by index; nodes joined by a tensor without a counterpart are in one group."""
    leader = list(range(len(optimised.node)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    maker = {name: i for i, node in enumerate(optimised.node) for name in node.output}
    for i, node in enumerate(optimised.node):
        for name in reads(node):
            if name in maker and name not in counterpart:
                leader[find(i)] = find(maker[name])
    groups: dict[int, list[int]] = {}
    for i in range(len(optimised.node)):
        groups.setdefault(find(i), []).append(i)
    return list(groups.values())


def _operators_between(graph: Graph, nodes: Sequence[onnx.NodeProto], counterpart: dict[str, str]) -> set[int]:
    """The cleaned operators between the inputs and the outputs of `nodes`."""
    made = {name for node in nodes for name in node.output}
    stops = {counterpart[name] for node in nodes for name in reads(node) if name in counterpart and name not in made}
    ends = {counterpart[name] for name in made if name in counterpart}
    covered: set[int] = set()
    pending = [name for name in ends if name not in stops]
    while pending:
        operator = graph.producer.get(pending.pop())
        if operator is not None and operator not in covered:
            covered.add(operator)
            pending += [name for name in graph.operators[operator].inputs if name and name not in stops]
    if not covered:  # a change of format: it goes with the operator that made the tensor
        covered = {graph.producer[name] for name in ends if name in graph.producer}
    return covered
