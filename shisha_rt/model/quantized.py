"""Networks of integers that stand for reals: the floats that they are made into, once for each reader.

A graph in floats that are rounded to integers between its operators (QDQ) is run in integers by an engine that sees
both, the rounding and the floats made of it, around an operator. Of a stage that begins with floats already it cannot
tell, and they are four times as many bytes. So each reader has a DequantizeLinear of its own, and goes with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx

from shisha_rt.model.names import unused_name
from shisha_rt.model.rounding import DEQUANTIZE
from shisha_rt.model.subgraphs import all_nodes, reads, rename_reads


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
    """Return a copy of `node` that makes `result`; the copy has no name yet."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = ""
    copy.output[0] = result
    return copy
