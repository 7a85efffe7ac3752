"""One engine session as a stage, on whatever arrays it is bound to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shisha_rt.model.graph import Tensor
from shisha_rt.tensors import NUMPY_OF
from stages.engines.session import Array, Bound, CpuClock, Session


class SessionStage:
    """`ends`: its inputs and outputs. `frame_bytes`: these, and the weights."""

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

    def bind_to(self, stage_ends: Mapping[str, Array]) -> tuple[Bound, ...]:
        """What `run_bound` takes, on arrays of these ends."""
        names = self._session.input_names, self._session.output_names
        inputs, outputs = ([stage_ends[name] for name in ends] for ends in names)
        return (self._session.bind(inputs, outputs),)

    def run_bound(self, bound: Sequence[Bound], cpu_clock: CpuClock) -> tuple[float, ...]:
        """Compute on the arrays that it is bound to; it has no segments whose seconds could be told."""
        for compute in bound:
            compute()
        return ()
