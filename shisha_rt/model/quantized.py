"""Quantised networks: a DequantizeLinear of its own for each reader of the floats.

In such a graph (QDQ) floats are rounded to integers between operators. An engine computes an operator in integers if it
sees both, the DequantizeLinear before it and the QuantizeLinear after it. In a stage that began with floats it would
not see the first, and floats are four times as many bytes. So each reader has a DequantizeLinear of its own, in its
stage.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx

from shisha_rt.model.rounding import DEQUANTIZE
from shisha_rt.model.subgraphs import all_nodes, new_name, reads, rename_reads


def one_for_each_reader(nodes: Sequence[onnx.NodeProto], outputs: Collection[str]) -> list[onnx.NodeProto]:
    """The nodes of a graph with these `outputs`, in topological order, with copies of each DequantizeLinear.

    Each reader but the first gets a copy, and is changed in place. A DequantizeLinear that makes a graph output keeps
    no other reader.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in dict.fromkeys(reads(node)):
            readers.setdefault(name, []).append(node)
    taken = {name for node in all_nodes(nodes) for name in (*node.input, *node.output)} | {*outputs}
    placed = []
    for node in nodes:
        placed.append(node)
        if node.op_type == DEQUANTIZE:
            (result,) = node.output
            for reader in readers.get(result, [])[0 if result in outputs else 1 :]:
                name = new_name(result, taken)
                placed.append(_copy(node, name))
                rename_reads(reader, {result: name})
    return placed


def _copy(node: onnx.NodeProto, result: str) -> onnx.NodeProto:
    """Return a copy of `node` that makes `result`; the copy has no name yet."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = ""
    copy.output[0] = result
    return copy
