"""Networks of integers that stand for reals: where they round, and the floats that they are made into.

A graph in floats that are rounded to integers between its operators (QDQ) is run in integers by an engine that sees
both, the rounding and the floats made of it, around an operator. Of a stage that begins with floats already it cannot
tell, and they are four times as many bytes. So each reader has a DequantizeLinear of its own, and goes with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import onnx

from shisha_rt.model.graph import Operator
from shisha_rt.model.names import unused_name
from shisha_rt.model.subgraphs import all_nodes, reads, rename_reads

DEQUANTIZE: Final = "DequantizeLinear"
_ROUNDING: Final = ("QuantizeLinear", "DynamicQuantize", "QLinear", "QGemm")
"""How the types of operators begin that round to integers."""
_INTEGER_PRODUCTS: Final = ("ConvInteger", "MatMulInteger")
"""How the types of operators begin that multiply integers and hand on their sums."""


def rounds(operator: Operator) -> bool:
    """Whether it makes integers of reals: an engine that computes these a little otherwise may be a step off then."""
    return operator.op_type.startswith(_ROUNDING)


def depends_on_engine(operator: Operator) -> bool:
    """Whether engines may differ in it by more than floats' roundings: it rounds to integers, or multiplies them.

    On x86 processors without VNNI an engine may add two products of 8-bit integers in 16 bits, and cut off what is
    beyond.
    """
    return rounds(operator) or operator.op_type.startswith(_INTEGER_PRODUCTS)


def one_for_each_reader(nodes: Sequence[onnx.NodeProto], outputs: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes of a graph with these outputs, in topological order, with a copy for each reader but the first.

    Nodes that read a copy are changed in place. What makes a graph output makes that alone.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in dict.fromkeys(reads(node)):
            readers.setdefault(name, []).append(node)
    taken = {name for node in all_nodes(nodes) for name in (*node.input, *node.output)} | {*outputs}
    reasons = []
    for node in nodes:
        reasons.append(node)
        if node.op_type == DEQUANTIZE:
            (result,) = node.output
            for reader in readers.get(result, [])[0 if result in outputs else 1 :]:
                name = unused_name(result, taken)
                taken.add(name)
                reasons.append(_copy(node, name))
                rename_reads(reader, {result: name})
    return reasons


def _copy(node: onnx.NodeProto, result: str) -> onnx.NodeProto:
    """It has no name yet."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = ""
    copy.output[0] = result
    return copy
