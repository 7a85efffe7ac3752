"""A stage with a split as ONNX Runtime runs it: cut from the compiled graph, like any other stage.

Blocked formats are kept: a shard writes its channels in place into the tensor that the next stage reads. A
convolution's filters are a range of the file that all workers map. Columns of a product that are not contiguous, and
weights that the engine packs for itself, are private memory of the shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime as ort

from shisha_rt.model.graph import Tensor
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.tensors import NUMPY_OF
from stages.built.shard_stage import ShardStage
from stages.built.split_model import SplitStageModel
from stages.engines.onnxruntime.optimised_graph import block_size, read_optimised
from stages.engines.onnxruntime.options import as_built_options, optimising_options
from stages.engines.onnxruntime.session import PROVIDERS, OrtSession
from stages.engines.session import ONE_THREAD, Array, Bound, CpuClock, Session, Threads


def split_segment(
    folder: Path, index: ModelIndex, work: Sequence[Span], split: Split, threads: Threads = ONE_THREAD
) -> ShardStage:
    """Build a shard, or the join and the layers behind it.

    Raises ValueError for a split that is not possible, and whatever the engine raises.
    """
    split_model = SplitStageModel(_whole(folder), index, split, work, block_size())
    segment = split_model.segment("")
    to_options = optimising_options if index.form == "as_is" else as_built_options
    options = to_options(str(folder), threads)
    session = ort.InferenceSession(split_model.model.cut(segment).SerializeToString(), options, PROVIDERS)
    ends = [split_model.model.graph.tensors[name] for name in (*segment.inputs, *segment.outputs)]
    weight_bytes = split_model.model.weight_bytes(segment)
    stage = _SessionStage(OrtSession(session, split_model.model, segment), ends, weight_bytes)
    return ShardStage(stage, split_model.reads, split_model.makes, block_size())


_whole = lru_cache(maxsize=1)(read_optimised)


class _SessionStage:
    """One session as a stage, on whatever arrays it is bound to. `ends`: its inputs and outputs. `frame_bytes`: of its
    ends and weights.
    """

    described = False
    paced = False
    difference = 0.0

    def __init__(self, session: Session, ends: Sequence[Tensor], weight_bytes: int) -> None:
        self.frame_bytes = weight_bytes + sum(tensor.size_bytes for tensor in ends)
        self._session = session
        self._ends = {tensor.name: tensor for tensor in ends}

    def warm(self, cpu_clock: CpuClock) -> tuple[float, ...]:
        """Run once on memory of its own: first-run allocations happen before a frame waits for them."""
        zeros = {name: np.zeros(tensor.shape, NUMPY_OF[tensor.datatype]) for name, tensor in self._ends.items()}
        return self.run_bound(self.bind_to(zeros), cpu_clock)

    def end_warm_up(self) -> None:
        """Do nothing: `warm` keeps nothing."""

    def bind_to(self, stage_ends: Mapping[str, Array]) -> tuple[Bound, ...]:
        """Bind the session to arrays of the stage's inputs and outputs, for `run_bound`."""
        names = self._session.input_names, self._session.output_names
        inputs, outputs = ([stage_ends[name] for name in ends] for ends in names)
        return (self._session.bind(inputs, outputs),)

    def run_bound(self, bound: Sequence[Bound], cpu_clock: CpuClock) -> tuple[float, ...]:
        """Compute on the bound arrays; return (), as there are no segments to time."""
        for compute in bound:
            compute()
        return ()
