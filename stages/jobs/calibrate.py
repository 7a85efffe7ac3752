"""`python -m stages.jobs.calibrate JOB_JSON`: time runs of layers as if each were a stage.

Each span of layers is built as a segment of its own, exactly as a worker builds a stage, on a private arena of one
slot. All spans are then run in turns, round after round, so that a drift of the host hits all alike, and medians are
taken. A stage runs again and again on its core, so its weights and code are in the caches as far as they fit: a span
is therefore run once untimed before its timed run. (Without it the sum of SqueezeNet's layers came out 15% over the
whole model, and small stages up to 40% too slow.) Other cores that will have stages are kept busy (`neighbour`).

Rounds report progress, so this process ends when its parent stops reading; at most a hundred times, as the reader takes
CPU time from the measurement.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from shisha_rt.machine.device import Device
from shisha_rt.machine.host.cores import pin
from shisha_rt.machine.host.cpu_use import CpuReading, family, read_cpu_use
from shisha_rt.messages.calibration import (
    BesideJob,
    Calibrated,
    CalibrationJob,
    MeasuringJob,
    Progress,
    Rounds,
    SpanTime,
)
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.reader import index_file
from shisha_rt.model.spans import groups_of
from shisha_rt.plan.engine import EngineName
from shisha_rt.process.arena import Arena
from stages.engines.device_session import load_engines
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import Bound, CpuClock, EngineSession, Threads, untimed
from stages.jobs.neighbour import neighbours
from stages.noise import arena_of_own

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_SLOT: Final = 0
_TOLD_RATIO: Final = 0.01
"""Least share of the work between two progress lines."""
_MOST_WAITING: Final = 0.1
"""Largest share of a round that threads may wait for a core; the wall time of several threads grows by as much."""


def main(arguments: list[str]) -> int:
    job = msgspec.json.decode(arguments[0], type=CalibrationJob)
    with standing(job), neighbours(job.engine_folder, job.neighbours):
        calibrated = calibrate(job, tell=say)
    say(calibrated)
    return 0


def stand(job: MeasuringJob, engines: Iterable[EngineName] = ()) -> None:
    """Pin this process as a worker is pinned: to its place's cores, or, in a team, to the lead's.

    Unlike a worker it raises Failure if it may not use them all: times on other cores would be taken for the place's.
    """
    pin(job.cores)
    load_engines(engines)
    if job.lead:
        pin(job.lead)


@contextlib.contextmanager
def standing(job: MeasuringJob, engines: Iterable[EngineName] = ()) -> Iterator[None]:
    """As `stand`; raises Failure also at the end, if it may not use all cores any more."""
    stand(job, engines)
    yield
    pin(job.cores)


def threads_of(job: MeasuringJob, device: Device | None = None) -> Threads:
    """The job's threads, or as many of them as a device has; each thread of a team on a core of its own."""
    count = job.threads if device is None else device.threads_on(job.threads)
    return Threads(count, job.cores if job.lead else ())


def calibrate(job: CalibrationJob, tell: Callable[[Progress], None]) -> Calibrated:
    """Time the job's spans in this process, on the cores that it already runs on."""
    index = index_file.read_index(Path(job.engine_folder))
    model = OptimisedModel(Path(job.engine_folder), index)
    with arena_of_own(index, partial(_run_through, model, index)) as arena:
        threads = threads_of(job)
        # With one thread the engine computes in the calling thread, else in its own; nothing else runs in this process.
        cpu_clock = time.thread_time if job.threads == 1 else time.process_time
        if job.frames == 1:
            segments = [model.segment((span,), threads) for span in job.spans]
            timers = [Timer(segment.on_slot(arena, _SLOT), segment.frame_bytes, cpu_clock) for segment in segments]
        else:
            segments = [model.segment((span,), threads, index.batch_axes) for span in job.spans]
            timers = [_timer_of_many(segment, arena, job.frames, cpu_clock) for segment in segments]
        before = cpu_use(job)
        given_up = not run_rounds([timer.run for timer in timers], job, tell, Waiting() if job.undisturbed else None)
        times = () if given_up else tuple(timer.result() for timer in timers)
        return Calibrated(times, cpu_use(job).others_ratio(before))


def _timer_of_many(segment: EngineSession, arena: Arena, frames: int, cpu_clock: CpuClock) -> Timer:
    """A timer of batches, on memory of its own that holds the slot's frame `frames` times."""
    ends, regions = segment.ends, arena.layout.regions
    views = {spec.name: arena.view(_SLOT, regions[spec.name]) for spec in ends.both}
    arrays = {name: np.concatenate([view] * frames, ends.axes[name]) for name, view in views.items()}
    return Timer(segment.bind(arrays), segment.weight_bytes + frames * ends.size_bytes, cpu_clock)


def cpu_use(job: BesideJob) -> CpuReading:
    own = family(job.family) if job.family else ()
    return read_cpu_use({*job.cores, *job.neighbours}, own, time.monotonic())


@dataclass(slots=True)
class Timer:
    """What is timed, the bytes that it moves, and the times of its runs so far."""

    compute: Bound
    moved_bytes: int
    cpu_clock: CpuClock
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        self.compute(self.cpu_clock)
        cpu_start_s, wall_start_s = self.cpu_clock(), time.perf_counter()
        self.compute(self.cpu_clock)
        self.wall_s.append(time.perf_counter() - wall_start_s)
        self.cpu_s.append(self.cpu_clock() - cpu_start_s)

    def result(self) -> SpanTime:
        return SpanTime(
            cpu_s=statistics.median(self.cpu_s),
            wall_s=statistics.median(self.wall_s),
            spread_s=float(np.subtract(*np.quantile(self.cpu_s, (0.75, 0.25)))),
            runs=len(self.cpu_s),
            moved_bytes=self.moved_bytes,
        )


def threads_waited_s() -> float:
    """Seconds that this process's threads have waited for a core (kernel schedstat); 0 where it is not kept."""
    waited_ns = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has just ended
            waited_ns += int(file.read_text().split()[1])
    return waited_ns / 1e9


class Waiting:
    """Share of time in which ready threads waited for a core. `waited_s`: returns how long they have so far."""

    def __init__(self, waited_s: Callable[[], float] = threads_waited_s) -> None:
        self._look = waited_s
        self._at_s, self._waited_s = time.monotonic(), waited_s()

    def ratio(self) -> float:
        """The share since the last call; over 1 if several threads wait."""
        now_s, waited_s = time.monotonic(), self._look()
        ratio = (waited_s - self._waited_s) / (now_s - self._at_s)
        self._at_s, self._waited_s = now_s, waited_s
        return ratio


def run_rounds(
    turns: Sequence[Callable[[], None]],
    rounds: Rounds,
    tell: Callable[[Progress], None],
    waiting: Waiting | None = None,
) -> bool:
    """Run each of `turns` once in every round; return False if that was given up because threads had to wait."""
    start_s = time.monotonic()
    told_ratio = 0.0
    for done in range(1, rounds.max_rounds + 1):
        for turn in turns:
            turn()
        spent_ratio = (time.monotonic() - start_s) / rounds.budget_s
        done_ratio = min(1.0, max(done / rounds.max_rounds, min(spent_ratio, done / rounds.min_rounds)))
        if done_ratio == 1 or done_ratio - told_ratio >= _TOLD_RATIO:
            tell(Progress(done_ratio))
            told_ratio = done_ratio
        if waiting is not None and waiting.ratio() > _MOST_WAITING:
            return False
        if spent_ratio >= 1 and done >= rounds.min_rounds:
            break
    return True


def _run_through(model: OptimisedModel, index: ModelIndex, arena: Arena) -> None:
    """Run the model once, cut at every legal cut, so that each tensor a span reads holds what it would in service."""
    for group in groups_of(index.layer_count, index.legal_cuts):
        model.segment((group,)).on_slot(arena, _SLOT)(untimed)


def say(line: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
