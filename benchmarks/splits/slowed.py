"""Shards on a slowed place: as costs predict them, and as predicted after what earlier plans' shards took.

Each plan splits all layers that can be, over a place of this host and one that is emulated as slower, in other shares
or along other axes than the plans before it. So what is learnt is judged by shards that nobody has measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from benchmarks.report.results import Row
from benchmarks.rigs.daemons import Forced, forced, profiled
from benchmarks.splits.live import slowed_places
from benchmarks.splits.plans import Shared, nearest_shares, plan_with
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.model.split import Axis, Splittable
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.shards.splits_tried import with_splits_tried

AIM_PERCENT: Final = 10.0
_FRACTIONS: Final = (0.5, 0.7, 0.3)
"""Of each layer, on the first place."""
_AXES: Final[Sequence[Sequence[Axis]]] = (("channels", "columns", "groups"), ("inputs", "columns", "groups"))
"""The first that a layer can be split along."""
_BURST_S: Final = 1.5
_BURSTS: Final = 3


@dataclass(frozen=True, slots=True)
class Slowed:
    model: str
    speeds: tuple[float, float] = (1.0, 0.4)


FULL: Final = (Slowed("alexnet"), Slowed("squeezenet"), Slowed("vgg19"))
QUICK: Final = FULL[1:2]


def slowed_rows(case: Slowed) -> Iterator[Row]:
    with slowed_places(case.speeds) as machine:
        ready = profiled(case.model, machine)
        ways = [way for way in ready.rules.splits.values() if way.first == way.last and way.blocks > 1]
        costs = layer_costs(ready, print).costs()
        costs = replace(costs, splits=SplitCosts(tuple(ways), costs.splits.overhead_s))
        names = [place.name for place in machine.places]
        done: list[tuple[Plan, Measurement]] = []
        with forced(f"zoo:{case.model}", machine.source) as daemon:
            for axes in _AXES:
                chosen = list(_along(ways, axes))
                for fraction in _FRACTIONS:
                    shared = [
                        Shared(way, nearest_shares(way, (fraction, 1 - fraction)), tuple(names)) for way in chosen
                    ]
                    plan = plan_with(len(costs.layers), names[0], shared)
                    daemon.take(plan)
                    taken_s = _taken_s(daemon)
                    about = {"network": case.model, "plan": len(done) + 1, "axis": axes[0], "on the first": fraction}
                    yield from _off(about, costs, done, plan, taken_s, dict(zip(names, case.speeds, strict=True)))
                    done.append((plan, Measurement(taken_s, 0.02, 32, 1.0)))


def _along(ways: Sequence[Splittable], axes: Sequence[Axis]) -> Iterator[Splittable]:
    for layer in sorted({way.first for way in ways}):
        by_axis = {way.axis: way for way in ways if way.first == layer}
        yield from [by_axis[axis] for axis in axes if axis in by_axis][:1]


def _taken_s(daemon: Forced) -> tuple[float, ...]:
    """(stages,): the least of several medians, one frame at a time."""
    windows = []
    for _ in range(_BURSTS):
        daemon.burst(_BURST_S, warm_up=1)
        windows.append([stage["service_s"] for stage in daemon.control.status()["plan"]["stages"]])
    return tuple(map(min, zip(*windows, strict=True)))


def _off(
    about: Row,
    costs: Costs,
    done: Sequence[tuple[Plan, Measurement]],
    plan: Plan,
    taken_s: Sequence[float],
    speeds: Mapping[str, float],
) -> Iterator[Row]:
    """How far the plan's shards are from predictions without and with the corrections that follow from `done`."""
    learnt = with_splits_tried(costs, done, "latency").splits.scales
    corrected = replace(costs, splits=replace(costs.splits, scales=learnt))
    predicted_s, corrected_s = (team_costs(by).team_s(plan) for by in (costs, corrected))
    for place, speed in speeds.items():
        shards = [
            index
            for index, stage in enumerate(plan.stages)
            if stage.place == place and stage.split is not None and not stage.split.joins
        ]
        off = [
            [100 * abs(seconds[index][0] / taken_s[index] - 1) for index in shards]
            for seconds in (predicted_s, corrected_s)
        ]
        yield {
            **about,
            "place": place,
            "speed": speed,
            "shards": len(shards),
            "predicted: off %, median": median(off[0]),
            "predicted: off %, most": max(off[0]),
            "corrected: off %, median": median(off[1]) if done else None,
            "corrected: off %, most": max(off[1]) if done else None,
        }
