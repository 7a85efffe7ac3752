"""`python -m stages.jobs.profile_partitions JOB`: time partitions by themselves (PartitionTuner, Section 3.1).

Each partition becomes a session of its own on each device, with inputs and outputs in the plain format: so its time
includes the conversion of its tensors from and to that format, as in the paper. Sessions keep memory and are many, so
they are built, run in turns and dropped batch by batch; all devices' sessions of a partition are in one batch. Each is
run once untimed before it is timed (see `stages.jobs.calibrate` for why).

A device cannot run a partition that its engine refuses to build or to run, or computes wrong. The latter is checked if
an engine other than ONNX Runtime computes in integers (see `stages.jobs.profile_devices`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from shisha_rt.errors import Failure
from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import Progress, Rounds, SpanTime
from shisha_rt.messages.device_profiling import PartitionProfilingJob, PartitionsTimed
from shisha_rt.model.rounding import depends_on_engine
from shisha_rt.placement.segments import Segment, segment
from stages.built.clean_model import CleanModel
from stages.built.differences import relative_difference
from stages.built.placed import EXACT, most_apart
from stages.engines.device_session import build_session
from stages.engines.session import Array, untimed
from stages.jobs.calibrate import Timer, run_rounds, say, standing, threads_of
from stages.jobs.neighbour import neighbours
from stages.noise import noise_for

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_MOST_SESSIONS: Final = 64
_MOST_BYTES: Final = 256 << 20
"""Limits of a batch of partitions; bytes: weights, inputs and outputs of all its sessions."""


def main(arguments: list[str]) -> int:
    job = msgspec.json.decode(arguments[0], type=PartitionProfilingJob)
    engines = [device.engine for device in job.devices]
    with standing(job, engines), neighbours(job.model_folder, job.neighbours):
        timed = time_partitions(job, tell=say)
    say(timed)
    return 0


def time_partitions(job: PartitionProfilingJob, tell: Callable[[Progress], None]) -> PartitionsTimed:
    """Time the job's partitions in this process, on its cores. Raises Failure if an engine is not installed."""
    model = CleanModel.read(Path(job.model_folder))
    times: list[tuple[SpanTime | None, ...]] = []
    partitions = [_Partition.of(model, operators) for operators in job.partitions]
    for batch in _batches(partitions, len(job.devices)):
        timers = [partition.timers(job) for partition in batch]
        turns = [timer.run for partition_timers in timers for timer in partition_timers if timer is not None]
        done, share = len(times) / len(job.partitions), len(batch) / len(job.partitions)
        batch_rounds = Rounds(budget_s=job.budget_s * share, min_rounds=job.min_rounds, max_rounds=job.max_rounds)
        run_rounds(turns, batch_rounds, partial(_tell_share, tell, done, share))
        times += [
            tuple(None if timer is None else timer.result() for timer in partition_timers)
            for partition_timers in timers
        ]
    return PartitionsTimed(tuple(times))


def _tell_share(tell: Callable[[Progress], None], done: float, share: float, progress: Progress) -> None:
    """Report the progress of a `share` of the job; `done`: the share finished before."""
    tell(Progress(min(1.0, done + share * progress.done_ratio)))


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition as a model of its own; `whole`: all its operators. `moved_bytes`: its weights, inputs and outputs."""

    model: CleanModel
    whole: Segment
    moved_bytes: int

    @classmethod
    def of(cls, model: CleanModel, operators: Sequence[int]) -> _Partition:
        part = model.part(operators)
        whole = segment(part.graph, 0, len(operators) - 1, device="")
        ends = (*part.graph.inputs, *part.graph.outputs)
        return cls(part, whole, part.weight_bytes(whole) + sum(tensor.size_bytes for tensor in ends))

    def timers(self, job: PartitionProfilingJob) -> list[Timer | None]:
        """(devices,): a timer of the partition on each device; None for a device that cannot run it."""
        graph = self.model.graph
        arrays = noise_for((*graph.inputs, *graph.outputs), np.random.default_rng(0))
        return [self._timer(job, device, arrays) for device in job.devices]

    def _timer(self, job: PartitionProfilingJob, device: Device, arrays: dict[str, Array]) -> Timer | None:
        """Timer of the partition on a device; None if the device cannot run it."""
        graph = self.model.graph
        if not all(device.takes(tensor.datatype) for tensor in (*graph.tensors.values(), *graph.constants.values())):
            return None
        try:
            compute = build_session(self.model, self.whole, device, threads_of(job, device)).bind(arrays)
            compute(untimed)
        except (Failure, MemoryError):  # not because of this partition: an engine is missing, or memory
            raise
        except Exception:  # engines raise exceptions of any type
            return None
        if device.exact and device.engine != EXACT.engine and any(map(depends_on_engine, graph.operators)):
            expected = build_session(self.model, self.whole, EXACT).answers(
                {name: arrays[name] for name in self.whole.inputs}
            )
            for tensor in graph.outputs:
                if not relative_difference(arrays[tensor.name], expected[tensor.name]) <= most_apart([tensor.datatype]):
                    return None  # also for NaN
        # CPU time of the whole process, as nothing runs in it but the engines' threads.
        return Timer(compute, self.moved_bytes, time.process_time)


def _batches(partitions: Sequence[_Partition], devices: int) -> Iterator[list[_Partition]]:
    """The partitions in order, as many at a time as sessions and bytes permit, but at least one."""
    batch: list[_Partition] = []
    for partition in partitions:
        size_bytes = devices * sum(member.moved_bytes for member in (*batch, partition))
        if batch and (size_bytes > _MOST_BYTES or devices * (len(batch) + 1) > _MOST_SESSIONS):
            yield batch
            batch = []
        batch.append(partition)
    if batch:
        yield batch


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
