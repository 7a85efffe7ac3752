"""What each engine makes of a whole network on this host: whether it agrees with ONNX Runtime, and what a frame takes.

These order what is tried live; they never keep an engine: that is for live measurements to say. What they may do is to
rule an engine out: one that does not run the network, whose answers differ, or that is far slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from shisha_rt.plan.engine import DEFAULT_ENGINE, EngineName

MOST_APART: Final = 1e-3
"""By how much of an output's largest value an engine's answers may differ from ONNX Runtime's."""
MOST_UNLIKE: Final = 1e-3
"""Share of an output's whole numbers that may be other than ONNX Runtime's."""
FAR_SLOWER: Final = 1.5
"""An engine that takes so many times as long as the best is not tried live."""


class EngineTime(Struct, frozen=True):
    """Seconds of one frame on so many `threads`, the median over `runs`: by the clock, and of all threads' CPU time."""

    threads: int
    wall_s: float
    cpu_s: float
    runs: int


class EngineTrial(Struct, frozen=True):
    """One engine on one network. Where it does not run it, or answers in other shapes, `reason` says so in a line.

    `difference`: the largest of any output's reals, as part of that output's largest value; `unlike`: the largest share
    of an output's whole numbers; both from ONNX Runtime's answers on the same frames, None where there are none.
    `private_bytes`: memory that one session on one thread takes for itself. `times`: one thread, and all.
    """

    engine: EngineName
    version: str
    runs: bool
    reason: str = ""
    difference: float | None = None
    unlike: float | None = None
    build_s: float = 0.0
    private_bytes: int = 0
    times: tuple[EngineTime, ...] = ()

    def time_s(self, threads: int) -> float | None:
        """Seconds of a frame by the clock on so many threads; None where that was not measured."""
        return next((time.wall_s for time in self.times if time.threads == threads), None)


class EnginesTried(Struct, frozen=True, tag="engines_tried"):
    """All engines that are installed, ONNX Runtime first. `others_ratio`: the part of the cores that others took."""

    engines: tuple[EngineTrial, ...]
    others_ratio: float = 0.0

    def of(self, engine: EngineName) -> EngineTrial | None:
        return next((trial for trial in self.engines if trial.engine == engine), None)


def why_not(trial: EngineTrial) -> str:
    """Why an engine must not serve this network; empty where it may."""
    if not trial.runs or trial.reason:
        return trial.reason or "it does not run the network"
    return why_apart(trial.difference, trial.unlike)


def why_apart(difference: float | None, unlike: float | None) -> str:
    """Why answers that differ so (see `EngineTrial`) are not those of one network; empty where rounding explains it."""
    if difference is not None and difference > MOST_APART:
        return f"answers differ by {difference:.2g} of an output's largest value, at most {MOST_APART:g} may be"
    if unlike is not None and unlike > MOST_UNLIKE:
        return f"{unlike:.2%} of an output's whole numbers differ, at most {MOST_UNLIKE:.2%} may"
    return ""


def usable(tried: EnginesTried) -> tuple[EngineName, ...]:
    """The engines that may serve the network."""
    return tuple(trial.engine for trial in tried.engines if trial.engine == DEFAULT_ENGINE or not why_not(trial))


def far_slower(tried: EnginesTried, engines: Sequence[EngineName], threads: int) -> frozenset[EngineName]:
    """Those that take far longer than the best of them for a frame on so many threads."""
    times = {engine: trial.time_s(threads) for engine in engines if (trial := tried.of(engine)) is not None}
    known = {engine: time_s for engine, time_s in times.items() if time_s is not None}
    least_s = min(known.values(), default=0.0)
    return frozenset(engine for engine, time_s in known.items() if time_s > FAR_SLOWER * least_s)
