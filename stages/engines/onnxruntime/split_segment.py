"""A stage with a split as ONNX Runtime runs it: cut from the graph that was compiled, like any other.

Blocked formats stay: a shard makes its channels where they belong in the tensor that the next stage reads. Filters of a
convolution are a range of the file that all workers map; what of a product's columns does not lie in one piece, and all
that the engine packs for itself, is private memory of the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import onnxruntime as ort

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from stages.built.shard_stage import ShardStage
from stages.built.split_model import SplitStageModel
from stages.engines.onnxruntime.optimised_graph import block_size, read_optimised
from stages.engines.onnxruntime.options import as_built_options, optimising_options
from stages.engines.onnxruntime.session import PROVIDERS, OrtSession
from stages.engines.session import ONE_THREAD, Threads
from stages.engines.session_stage import SessionStage


def split_segment(
    folder: Path, index: ModelIndex, work: Sequence[Span], split: Split, threads: Threads = ONE_THREAD
) -> ShardStage:
    """Build a shard, or the join and the layers behind it.

    Raises ValueError for a split that cannot be, and whatever the engine raises.
    """
    split_model = SplitStageModel(_whole(folder), index, split, work, block_size())
    segment = split_model.segment("")
    to_options = optimising_options if index.form == "as_is" else as_built_options
    options = to_options(str(folder), threads)
    session = ort.InferenceSession(split_model.model.cut(segment).SerializeToString(), options, PROVIDERS)
    ends = [split_model.model.graph.tensors[name] for name in (*segment.inputs, *segment.outputs)]
    weight_bytes = split_model.model.weight_bytes(segment)
    stage = SessionStage(OrtSession(session, split_model.model, segment), ends, weight_bytes)
    return ShardStage(stage, split_model.reads, split_model.makes, block_size())


_whole = lru_cache(maxsize=1)(read_optimised)
