"""A stage with a split as ONNX Runtime runs it: cut from the compiled graph, like any other stage.

Blocked formats are kept: a shard writes its channels in place into the tensor that the next stage reads. A
convolution's filters are a range of the file that all workers map. Columns of a product that are not contiguous, and
weights that the engine packs for itself, are private memory of the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from stages.built.shard_stage import ShardStage
from stages.built.split_model import SplitStageModel
from stages.engines.onnxruntime.optimised_graph import block_size, read_optimised
from stages.engines.onnxruntime.options import as_built_options, open_session, optimising_options
from stages.engines.onnxruntime.session import OrtSession
from stages.engines.session import ONE_THREAD, EngineSession, Threads


def split_segment(
    folder: Path, index: ModelIndex, work: Sequence[Span], split: Split, threads: Threads = ONE_THREAD
) -> EngineSession:
    """Build a shard, or the join and the layers behind it.

    Raises ValueError for a split that is not possible, and whatever the engine raises.
    """
    split_model = SplitStageModel(_optimised(folder), index, split, work, block_size())
    model, segment = split_model.model, split_model.segment("")
    to_options = optimising_options if index.form == "as_is" else as_built_options
    session = open_session(model.cut(segment).SerializeToString(), to_options(str(folder), threads))
    inner = OrtSession(session, model.ends(segment), model.weight_bytes(segment))
    if split.joins:  # a join has whole tensors, as any stage does, even such whose shape depends on the data
        return inner
    return ShardStage(inner, split_model.reads, split_model.makes, block_size())


_optimised = lru_cache(maxsize=1)(read_optimised)
