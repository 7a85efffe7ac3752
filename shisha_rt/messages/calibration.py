"""What the daemon asks of a calibration, and what it answers: JSON lines on the child's standard output."""

from __future__ import annotations

import msgspec


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure: `min_rounds` rounds whatever they take, then more until `budget_s` or `max_rounds`."""

    budget_s: float
    min_rounds: int
    max_rounds: int


class MeasuringJob(Rounds, frozen=True, kw_only=True):
    """Conditions of a measurement: on `cores`, with `threads` threads (of devices at most so many each).

    Each core of `neighbours` is kept busy with the model meanwhile. `lead`: of a team of several places, the first of
    `cores`, on which the thread runs that asks the engine; the engine's own threads are on the others.
    """

    cores: tuple[int, ...]
    threads: int
    neighbours: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()


class BesideJob(MeasuringJob, frozen=True, kw_only=True):
    """A measurement that may go on beside the frames of a daemon.

    `undisturbed`: give up after a round in which the engine's threads waited for cores that other processes had.
    `family`: the process whose family is ours; what else runs on the cores meanwhile counts as others (0: everything).
    """

    undisturbed: bool = False
    family: int = 0


class CalibrationJob(BesideJob, frozen=True, kw_only=True):
    """Measure `spans` (first and last layer, inclusive) of the model in `engine_folder`, runs of so many `frames`."""

    engine_folder: str
    spans: tuple[tuple[int, int], ...]
    frames: int = 1


class NeighbourJob(msgspec.Struct, frozen=True):
    """Run the model in `folder`, optimised or only `clean`, on `core` until killed, or until the parent is no more."""

    folder: str
    core: int
    parent_pid: int
    clean: bool = False


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """`done_ratio` of the way, 0 to 1."""

    done_ratio: float


class SpanTime(msgspec.Struct, frozen=True):
    """Medians over `runs` runs, the interquartile range of the CPU time, and the bytes that one run moves."""

    cpu_s: float
    wall_s: float
    spread_s: float
    runs: int
    moved_bytes: int


class Calibrated(msgspec.Struct, frozen=True, tag="calibrated"):
    """The last line: one entry for each span, in the order of the job; none if it was given up.

    `others_ratio`: the part of the job's and its neighbours' cores that others took meanwhile.
    """

    times: tuple[SpanTime, ...]
    others_ratio: float = 0.0
