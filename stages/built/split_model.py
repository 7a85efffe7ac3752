"""A shard, or a join with the layers behind it, as a model of its own, from which a stage is built like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx

from shisha_rt.fabric.model_index import ModelIndex
from shisha_rt.graph.graph import Tensor
from shisha_rt.graph.spans import Span
from shisha_rt.placement.segments import Segment
from shisha_rt.plan.split import Split
from shisha_rt.split.rewrite.rewrite import split_run
from shisha_rt.split.rewrite.shard_graphs import join_graph, operators_behind, operators_within, shard_graph
from shisha_rt.split.rewrite.shards import Excerpt, SplitRun
from stages.built.clean_model import CleanModel
from stages.built.shard_nodes import ShardedModel, join_nodes


class SplitStageModel:
    """What a stage with a split computes: `model` is it, `reads` and `makes` are pieces of tensors in the slot.

    `whole` is the graph that stages are cut from, in which `index` says where layers are; `work` the stage's layers.
    `block`: channels that lie together in blocked formats (0: there are none). Raises ValueError for what cannot be.
    """

    def __init__(self, whole: CleanModel, index: ModelIndex, split: Split, work: Sequence[Span], block: int) -> None:
        run = split_run(whole.graph, operators_within(index.node_layers, [split.span]), split.axis, split.shares)
        if split.joins:
            self.model = _joined(whole, run, operators_behind(index.node_layers, split, work))
            self.reads = tuple(Excerpt(tensor.name) for tensor in self.model.graph.inputs)
            self.makes = tuple(Excerpt(tensor.name) for tensor in self.model.graph.outputs)
        else:
            shards = ShardedModel(whole.proto, whole.graph, whole.folder, block)
            graph = shard_graph(whole.graph, run, split.part)
            partial = run.join.sum.parts if run.join.sum is not None else ()
            self.model = whole.changed(graph, shards.shard(run, split.part), partial)
            self.reads, self.makes = run.shards[split.part].reads, run.shards[split.part].makes

    def segment(self, device: str) -> Segment:
        """All of it."""
        graph = self.model.graph
        inputs, outputs = ([tensor.name for tensor in ends] for ends in (graph.inputs, graph.outputs))
        return Segment(device, 0, len(graph.operators) - 1, tuple(inputs), tuple(outputs))


def _joined(whole: CleanModel, run: SplitRun, behind: Sequence[int]) -> CleanModel:
    """The join, and operators behind it."""
    opset = next((its.version for its in whole.proto.opset_import if its.domain in ("", "ai.onnx")), 1)
    nodes, new = join_nodes(whole.proto.graph.node, whole.graph, run.join, opset)
    graph = join_graph(whole.graph, run, behind)
    constants = {constant.name: constant for constant in whole.proto.graph.initializer}
    model = onnx.ModelProto(
        ir_version=whole.proto.ir_version,
        opset_import=whole.proto.opset_import,
        graph=onnx.GraphProto(
            node=[*nodes, *(whole.proto.graph.node[one] for one in behind)],
            initializer=[*new, *(constants[name] for name in graph.constants if name in constants)],
        ),
    )
    added = {constant.name: Tensor(constant.name, tuple(constant.dims), "FP32") for constant in new}
    return whole.changed(replace(graph, constants={**graph.constants, **added}), model)
