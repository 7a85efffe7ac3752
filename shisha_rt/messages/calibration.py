"""The job of a calibration, and its answers: JSON lines on the child's standard output."""

from __future__ import annotations

import msgspec


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure: `min_rounds` rounds whatever they take, then more until `budget_s` or `max_rounds`."""

    budget_s: float
    min_rounds: int
    max_rounds: int


class MeasuringJob(Rounds, frozen=True, kw_only=True):
    """Conditions of a measurement: on `cores`, with `threads` threads (each device has at most so many).

    Each core of `neighbours` runs the model meanwhile, to be busy. `lead`: for a team of several places, the first of
    `cores`; the thread that calls the engine runs there, the engine's own threads on the other cores.
    """

    cores: tuple[int, ...]
    threads: int
    neighbours: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()


class BesideJob(MeasuringJob, frozen=True, kw_only=True):
    """A measurement that may go on beside the frames of a daemon.

    `undisturbed`: give up after a round in which the engine's threads waited for cores that other processes had.
    `family`: id of a process that counts as ours, with its descendants; all else that runs on the cores meanwhile
    counts as others (0: everything).
    """

    undisturbed: bool = False
    family: int = 0


class CalibrationJob(BesideJob, frozen=True, kw_only=True):
    """Measure `spans` (first and last layer, inclusive) of the model in `engine_folder`, in batches of `frames`."""

    engine_folder: str
    spans: tuple[tuple[int, int], ...]
    frames: int = 1


class NeighbourJob(msgspec.Struct, frozen=True):
    """Run the model in `folder`, cleaned or compiled, on `core` until killed, or until the parent ends."""

    folder: str
    core: int
    parent_pid: int


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """`done_ratio`: how much is done, 0 to 1."""

    done_ratio: float


class SpanTime(msgspec.Struct, frozen=True):
    """Medians over `runs` runs; `spread_s`: the CPU time's interquartile range; `moved_bytes`: what one run moves."""

    cpu_s: float
    wall_s: float
    spread_s: float
    runs: int
    moved_bytes: int


class Calibrated(msgspec.Struct, frozen=True, tag="calibrated"):
    """The last line: one entry for each span, in the order of the job; none if the measurement was given up.

    `others_ratio`: the fraction of the job's and its neighbours' cores that others used meanwhile.
    """

    times: tuple[SpanTime, ...]
    others_ratio: float = 0.0
