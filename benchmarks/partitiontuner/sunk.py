"""Relus sunk under a Concat, as by the paper's compiler: a Concat of Relus only becomes one Relu after the Concat.

No value changes. That the compiler does so follows from the paper's counts: GoogLeNet has 18 Relus right after a Conv
on the NPU, SqueezeNet 8; in their files there are 52 and 24.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
from onnx import helper

from shisha_rt.model.zoo import zoo_path


def sunk_path(network: str, folder: Path) -> Path:
    """Write a network of the zoo with its Relus sunk to `folder`; return the file."""
    path = folder / f"{network}.onnx"
    onnx.save(sunk(onnx.load(zoo_path(network))), path)
    return path


def sunk(model: onnx.ModelProto) -> onnx.ModelProto:
    """A new model with the same inputs and outputs. Relus that something else reads, too, are not sunk."""
    made = {name: node for node in model.graph.node for name in node.output}
    reads = Counter(name for node in model.graph.node for name in node.input)
    reads.update(output.name for output in model.graph.output)
    gone: set[str] = set()
    nodes = []
    for node in model.graph.node:
        relus = [made.get(name) for name in node.input]
        if node.op_type == "Concat" and all(
            relu is not None and relu.op_type == "Relu" and reads[relu.output[0]] == 1 for relu in relus
        ):
            gone.update(node.input)
            joined = f"{node.output[0]}/before_relu"
            concat = onnx.NodeProto()
            concat.CopyFrom(node)
            concat.input[:] = [relu.input[0] for relu in relus if relu is not None]
            concat.output[:] = [joined]
            nodes += [concat, helper.make_node("Relu", [joined], list(node.output), f"{node.output[0]}/relu")]
        else:
            nodes.append(node)
    found = onnx.ModelProto()
    found.CopyFrom(model)
    found.graph.ClearField("node")
    found.graph.node.extend(node for node in nodes if not gone.intersection(node.output))
    stale = [value for value in found.graph.value_info if value.name in gone]
    for value in stale:
        found.graph.value_info.remove(value)
    return found
