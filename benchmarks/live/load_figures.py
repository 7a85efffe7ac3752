"""Arrivals, percentiles, and the aims of the load sweep. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.report.results import Row, Spread, written

AUTO: Final = "daemon_auto"
FIXED: Final = ("daemon_latency", "daemon_throughput")
AIM: Final = 1.1
"""Largest ratio to the better fixed plan, for p50 and p99."""
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
    """Percentile with linear interpolation. Raises ValueError without figures."""
    if not figures:
        raise ValueError("no figures")
    found = sorted(figures)
    at = (len(found) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(found) - 1)
    return found[low] + (found[high] - found[low]) * (at - low)


@dataclass(frozen=True, slots=True)
class Heard:
    """Results of the frames of one round at one rate; latencies count from the times at which they were to be sent."""

    latencies_s: Sequence[float]
    refused: int
    failed: int
    lost: int

    @property
    def sent(self) -> int:
        return len(self.latencies_s) + self.refused + self.failed + self.lost


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

    def p99_ms(self, side: str) -> float | None:
        """The p99 of the frames of all rounds together, as one round has too few."""
        pooled = [latency_s for one in self.rounds for latency_s in one[side].latencies_s]
        return 1e3 * percentile(pooled, 99) if pooled else None

    def row(self, side: str) -> Row:
        heard = [one[side] for one in self.rounds]
        return {
            "model": self.model,
            "load %": self.percent,
            "frames/s": self.rate_fps,
            "side": side,
            "p50 ms": self.p50_ms(side),
            "p99 ms": self.p99_ms(side),
            "sent": sum(one.sent for one in heard),
            "refused %": 100 * sum(one.refused for one in heard) / max(1, sum(one.sent for one in heard)),
            "failed": sum(one.failed for one in heard),
            "lost": sum(one.lost for one in heard),
        }

    def over(self, sides: Sequence[str], which: str) -> tuple[float, str] | None:
        """`AUTO`'s latency over the least of `sides`, and that side. `which`: p50 (ratios within rounds) or p99."""
        there = [side for side in sides if side in self.rounds[0] and self.p99_ms(side) is not None]
        if AUTO not in self.rounds[0] or not there or self.p99_ms(AUTO) is None:
            return None
        if which == "p99":
            best = min(there, key=lambda side: self.p99_ms(side) or 0.0)
            return (self.p99_ms(AUTO) or 0.0) / (self.p99_ms(best) or 1.0), best
        medians = {side: self.p50_ms(side) for side in (*there, AUTO)}
        known = {side: its.median for side, its in medians.items() if its is not None}
        if AUTO not in known or len(known) < 2:
            return None
        best = min((side for side in known if side != AUTO), key=lambda side: known[side])
        ratios = [percentile(one[AUTO].latencies_s, 50) / percentile(one[best].latencies_s, 50) for one in self.rounds]
        return statistics.median(ratios), best


def ratio_rows(found: Sequence[AtRate], rivals: Sequence[str]) -> list[Row]:
    """`AUTO` over the better fixed plan, with the aim, and over the best rival."""
    rows: list[Row] = []
    for its in found:
        for which in ("p50", "p99"):
            fixed, rival = its.over(FIXED, which), its.over(rivals, which)
            if fixed is None and rival is None:
                continue
            rows.append(
                {
                    "model": its.model,
                    "load %": its.percent,
                    "latency": which,
                    "over the better fixed plan": None if fixed is None else fixed[0],
                    "which is": None if fixed is None else fixed[1],
                    "at most": AIM,
                    "met": "not measured" if fixed is None else "yes" if fixed[0] <= AIM else "no",
                    "over the best rival": None if rival is None else rival[0],
                    "that is": None if rival is None else rival[1],
                }
            )
    return rows


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
    all_s = [*took["throughput"], *took["latency"]]
    return {
        "model": model,
        "steps": len(steps),
        "frames": sum(one.sent for one in heard),
        "refused": sum(one.refused for one in heard),
        "failed": sum(one.failed for one in heard),
        "lost": sum(one.lost for one in heard),
        "s until the plan for throughput": Spread.of(took["throughput"]) if took["throughput"] else None,
        "s until the plan for latency": Spread.of(took["latency"]) if took["latency"] else None,
        "longest s": max(all_s) if all_s else None,
        "steps not followed": len(steps) - len(all_s),
        "plan changes": changes,
        "other plans": max(0, went_live - changes),
        "aims": f"0 lost; {written(SWITCH_AIM_S)} s; {len(steps)} changes",
    }
