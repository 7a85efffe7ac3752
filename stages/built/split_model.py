"""A shard, or a join with the layers behind it, as a model of its own, from which a stage is built like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.shards.rewrite import split_run
from shisha_rt.model.shards.shard_graphs import join_graph, operators_behind, operators_within, shard_graph
from shisha_rt.model.shards.shards import Excerpt
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.built.shard_nodes import ShardedModel


class SplitStageModel:
    """A stage with a split, as a `model`, with the pieces of tensors in the slot that it `reads` and `makes`.

    `whole`: the model that stages are cut from; `index`: where its layers are; `work`: the stage's layers. `block`:
    channels of a block in blocked formats (0: there are none). Raises ValueError for a split that is not possible.
    """

    def __init__(self, whole: CleanModel, index: ModelIndex, split: Split, work: Sequence[Span], block: int) -> None:
        run = split_run(whole.graph, operators_within(index.node_layers, [split.span]), split.axis, split.shares)
        shards = ShardedModel(whole, block)
        if split.joins:
            behind = operators_behind(index.node_layers, split, work)
            graph = join_graph(whole.graph, run, behind)
            self.model = replace(whole, graph=graph, proto=shards.join(run, behind))
            self.reads = tuple(Excerpt(tensor.name) for tensor in graph.inputs)
            self.makes = tuple(Excerpt(tensor.name) for tensor in graph.outputs)
        else:
            graph = shard_graph(whole.graph, run, split.part)
            partial = run.join.sum.parts if run.join.sum is not None else ()
            proto = shards.shard(run, split.part)
            self.model = replace(whole, graph=graph, proto=proto, partial=frozenset(partial))
            self.reads, self.makes = run.shards[split.part].reads, run.shards[split.part].makes

    def segment(self, device: str) -> Segment:
        graph = self.model.graph
        inputs, outputs = ([tensor.name for tensor in ends] for ends in (graph.inputs, graph.outputs))
        return Segment(device, 0, len(graph.operators) - 1, tuple(inputs), tuple(outputs))
