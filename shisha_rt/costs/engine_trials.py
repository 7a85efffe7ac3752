"""Trials of engines on a whole network, on this host: whether answers agree with ONNX Runtime's, and seconds a frame.

They decide in which order engines are tried live; only live measurements choose one. But trials can rule an engine out:
one that does not run the network, whose answers differ, or that is far slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shisha_rt.plan.engine import DEFAULT_ENGINE, EngineName, is_exact

MOST_APART: Final = 1e-3
"""By how much of an output's largest value an engine's answers may differ from ONNX Runtime's."""
MOST_UNLIKE: Final = 1e-3
"""Share of an output's integers that may differ from ONNX Runtime's; 8-bit ones differ if more than one step apart."""
_NOTHING_IN_COMMON: Final = 1.0
"""Answers in bfloat16, which only those get who permit other answers, count as wrong from this part of an output's
largest value on: zeros in place of answers are so far off, and rounding alone up to half of that in deep networks.
"""
_OVER_ROUNDING: Final = 1.001
"""Answers agree if they differ by at most so many times what rounding explains: a quantised output moves by steps."""
FAR_SLOWER: Final = 1.5
"""An engine that takes more than this many times as long as the best is not tried live."""
RUN_S: Final = 0.3e-3
"""CPU seconds that a daemon spends on a batch, or on a single frame, besides its engine."""
WORTH_A_BATCH: Final = 1.03
"""Batches are tried live if their gain (`gain_of_batches`) is at least this."""
_LEVEL: Final = 1.03
"""Times whose ratio is at most this count as equal."""


class EngineTime(Struct, frozen=True):
    """Median seconds of one frame over `runs`, on `threads` threads: by the clock, and CPU time of all threads."""

    threads: int
    wall_s: float
    cpu_s: float
    runs: int


class BatchTime(Struct, frozen=True):
    """CPU seconds on one thread, for each frame of a batch of `frames`, and for a single frame.

    `private_bytes`: memory of a session that computes both, in all shapes; `EngineTrial` has that for single frames.
    """

    frames: int
    frame_s: float
    single_s: float
    private_bytes: int = 0

    @property
    def gain(self) -> float:
        return self.single_s / self.frame_s


class EngineTrial(Struct, frozen=True):
    """One engine on one network. `reason`: a line, if it does not run the network or answers in other shapes.

    `difference` and `unlike` are from ONNX Runtime's answers on the same frames; None if there are no such outputs.
    `difference`: the largest of any output's reals, as part of that output's largest value; `over_rounding`: over what
    rounding explains (see `agreement.Apart`). `unlike`: the largest share of an output's whole numbers that differ.
    `batch_times`: times of batches, if network and engine can have any. `private_bytes`: private memory of one
    session on one thread. `times`: on one thread, and on all.
    """

    engine: EngineName
    version: str
    runs: bool
    reason: str = ""
    difference: float | None = None
    unlike: float | None = None
    over_rounding: float | None = None
    build_s: float = 0.0
    private_bytes: int = 0
    times: tuple[EngineTime, ...] = ()
    batch_times: tuple[BatchTime, ...] = ()

    @property
    def gain_of_batches(self) -> float:
        """How many times as many frames a second a daemon may compute in batches; 1 if not known."""
        gains = ((time.single_s + RUN_S) / (time.frame_s + RUN_S / time.frames) for time in self.batch_times)
        return max(gains, default=1.0)

    @property
    def batched_s(self) -> float:
        """Seconds for each frame of a batch; inf if batches do not pay or are not known."""
        frame_s = min((time.frame_s for time in self.batch_times), default=math.inf)
        return frame_s if self.gain_of_batches >= WORTH_A_BATCH else math.inf

    def private_bytes_of(self, frames: int) -> int:
        """Upper estimate of private memory for batches of up to `frames`, single frames included: scaled by size."""
        more = (frames * max(0, time.private_bytes - self.private_bytes) // time.frames for time in self.batch_times)
        return self.private_bytes + (max(more, default=0) if frames > 1 else 0)

    def time_s(self, threads: int) -> float | None:
        """Seconds of a frame on `threads` threads; None if not measured.

        By the clock; for one thread its CPU time, which hardly changes if other work shares the core.
        """
        return next(
            (time.cpu_s if threads == 1 else time.wall_s for time in self.times if time.threads == threads), None
        )


class EnginesTried(Struct, frozen=True, tag="engines_tried"):
    """All installed engines, ONNX Runtime first. `others_ratio`: share of the cores that other processes took."""

    engines: tuple[EngineTrial, ...]
    others_ratio: float = 0.0

    def of(self, engine: EngineName) -> EngineTrial | None:
        return next((trial for trial in self.engines if trial.engine == engine), None)


def together(tries: Sequence[EnginesTried]) -> EnginesTried:
    """Merge trials of the same engines on several numbers of threads, the fewest first."""
    by_engine = zip(*(tried.engines for tried in tries), strict=True)
    return EnginesTried(tuple(map(_merged, by_engine)), max(tried.others_ratio for tried in tries))


def _merged(trials: Sequence[EngineTrial]) -> EngineTrial:
    merged = replace(
        trials[0],
        runs=all(trial.runs for trial in trials),
        reason=next((trial.reason for trial in trials if trial.reason), ""),
        times=tuple(time for trial in trials for time in trial.times),
        batch_times=tuple(time for trial in trials for time in trial.batch_times),
    )
    for trial in trials[1:]:
        merged = further_apart(merged, trial.difference, trial.unlike, trial.over_rounding)
    return merged


def further_apart(
    trial: EngineTrial, difference: float | None, unlike: float | None, over_rounding: float | None
) -> EngineTrial:
    """The trial with the differences of a further frame: the largest count."""
    return replace(
        trial,
        difference=_larger(trial.difference, difference),
        unlike=_larger(trial.unlike, unlike),
        over_rounding=_larger(trial.over_rounding, over_rounding),
    )


def _larger(*shares: float | None) -> float | None:
    return max((share for share in shares if share is not None), default=None)


def why_not(trial: EngineTrial) -> str:
    """Why an engine must not serve this network; empty if it may."""
    if not trial.runs or trial.reason:
        return trial.reason or "it does not run the network"
    return why_apart(trial.difference, trial.unlike, trial.over_rounding, trial.engine)


def why_apart(
    difference: float | None, unlike: float | None, over_rounding: float | None, engine: EngineName = "openvino"
) -> str:
    """Why such differences (see `EngineTrial`) are too large to be rounding; empty if they are not."""
    if not is_exact(engine):
        wrong = difference is not None and difference >= _NOTHING_IN_COMMON
        return f"answers differ by {difference:.2g} of an output's largest value" if wrong else ""
    if over_rounding is not None and over_rounding > _OVER_ROUNDING:
        return (
            f"answers differ by {difference:.2g} of an output's largest value, "
            f"by {over_rounding:.3g} times as much as rounding explains"
        )
    if unlike is not None and unlike > MOST_UNLIKE:
        return f"{unlike:.2%} of an output's whole numbers differ, at most {MOST_UNLIKE:.2%} may"
    return ""


def usable(tried: EnginesTried) -> tuple[EngineName, ...]:
    return tuple(trial.engine for trial in tried.engines if trial.engine == DEFAULT_ENGINE or not why_not(trial))


def far_slower(tried: EnginesTried, engines: Sequence[EngineName], threads: int) -> frozenset[EngineName]:
    """The engines that take far longer than the best for a frame on `threads` threads, in batches, too."""
    times = {engine: trial.time_s(threads) for engine in engines if (trial := tried.of(engine)) is not None}
    known = {engine: time_s for engine, time_s in times.items() if time_s is not None}
    most_s = FAR_SLOWER * min(known.values(), default=0.0)
    in_runs = {trial.engine for trial in tried.engines if threads == 1 and trial.batched_s <= most_s}
    return frozenset(engine for engine, time_s in known.items() if time_s > most_s) - in_runs


def ahead(tried: EnginesTried, threads: int) -> EngineName | None:
    """The usable engine that is clearly the fastest on `threads` threads without loss of precision; or None."""
    exact = filter(is_exact, usable(tried))
    times = {engine: trial.time_s(threads) for engine in exact if (trial := tried.of(engine)) is not None}
    fastest = sorted((time_s, engine) for engine, time_s in times.items() if time_s is not None)
    return fastest[0][1] if len(fastest) > 1 and fastest[1][0] > _LEVEL * fastest[0][0] else None
