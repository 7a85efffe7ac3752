"""Arrivals, percentiles, and steps of the load. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.report.results import Row, Spread, written
from benchmarks.rigs.asking import Heard

AUTO: Final = "daemon_auto"
FIXED: Final = ("daemon_latency", "daemon_throughput")
SWITCH_AIM_S: Final = 1.0

Event = Mapping[str, Any]


def poisson(rate_fps: float, seconds: float, seed: str) -> list[float]:
    """Ascending times of arrivals from 0 on; at least one."""
    rng = random.Random(seed)
    at_s = rng.expovariate(rate_fps)
    found: list[float] = []
    while at_s < seconds or not found:
        found.append(at_s)
        at_s += rng.expovariate(rate_fps)
    return found


def percentile(figures: Sequence[float], percent: float) -> float:
    return float(np.percentile(figures, percent))


def at_ms(seconds: Sequence[float], percent: float) -> float | None:
    """Percentile in milliseconds; None without figures."""
    return 1e3 * percentile(seconds, percent) if len(seconds) else None


def together(heard: Sequence[Heard]) -> Heard:
    """Results of several rounds as of one."""
    return Heard(
        [latency_s for one in heard for latency_s in one.latencies_s],
        sum(one.refused for one in heard),
        sum(one.failed for one in heard),
        sum(one.lost for one in heard),
    )


@dataclass(frozen=True, slots=True)
class AtRate:
    """All rounds of all sides at one rate, `percent` of capacity. `rounds`: by side."""

    model: str
    percent: float
    rate_fps: float
    rounds: Sequence[Mapping[str, Heard]]

    def p50_ms(self, side: str) -> Spread | None:
        """Spread of the rounds' median latencies; None if a round had no answers."""
        its = [one[side].latencies_s for one in self.rounds]
        return Spread.of(1e3 * percentile(one, 50) for one in its) if all(its) else None

    def row(self, side: str) -> Row:
        """p99 is of the frames of all rounds together, as one round has too few."""
        heard = together([one[side] for one in self.rounds])
        return {
            "model": self.model,
            "load %": self.percent,
            "frames/s": self.rate_fps,
            "side": side,
            "p50 ms": self.p50_ms(side),
            "p99 ms": at_ms(heard.latencies_s, 99),
            "sent": heard.sent,
            "refused %": heard.refused_percent,
            "failed": heard.failed,
            "lost": heard.lost,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """A step to a load that wants `objective`; `until_s`: when the next step began. Times are of the events' clock."""

    objective: str
    at_s: float
    until_s: float


def switched_s(step: Step, events: Sequence[Event]) -> float | None:
    """Seconds from the step until the best plan for its objective served, which is when the daemon reports that its
    objective has changed; None: not before the next step.
    """
    for event in events:
        during = step.at_s <= event["time_s"] < step.until_s and event["kind"] == "objective_changed"
        if during and event["objective"] == step.objective and event["plan"] is not None:
            return float(event["time_s"] - step.at_s)
    return None


def step_row(model: str, steps: Sequence[Step], events: Sequence[Event], heard: Sequence[Heard]) -> Row:
    """`plan changes`: those due to the load; the aim is one for each step. `other plans`: plans tried meanwhile."""
    took: dict[str, list[float]] = {"throughput": [], "latency": []}
    for step in steps:
        seconds = switched_s(step, events)
        if seconds is not None:
            took[step.objective].append(seconds)
    begun_s, ended_s = steps[0].at_s, steps[-1].until_s
    during = [event for event in events if begun_s <= event["time_s"] < ended_s]
    changes = sum(event["kind"] == "objective_changed" and event["plan"] is not None for event in during)
    went_live = sum(event["kind"] == "plan_live" for event in during)
    all_s, frames = [*took["throughput"], *took["latency"]], together(heard)
    return {
        "model": model,
        "steps": len(steps),
        "frames": frames.sent,
        "refused": frames.refused,
        "failed": frames.failed,
        "lost": frames.lost,
        "s until the plan for throughput": Spread.of(took["throughput"]) if took["throughput"] else None,
        "s until the plan for latency": Spread.of(took["latency"]) if took["latency"] else None,
        "longest s": max(all_s) if all_s else None,
        "steps not followed": len(steps) - len(all_s),
        "plan changes": changes,
        "other plans": max(0, went_live - changes),
        "aims": f"0 lost; {written(SWITCH_AIM_S)} s; {len(steps)} changes",
    }
