"""Frames served in a simulation (see `paper_daemon`), with times of parts by costs. Pure.

So pictures show what `core/lifecycle/` would do with these plans: which worker gets a frame, which epoch it uses, and
when an epoch is retired.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rigs.paper_daemon import PaperDaemon
from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules


@dataclass(frozen=True, slots=True)
class Part:
    """One frame at one stage: when it is ready, starts and ends."""

    frame: int
    stage: int
    epoch: int
    place: str
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """A plan from when its stages are built to its last frame; inf if that is after the end."""

    live_s: float
    retired_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """`parts`: by their starts, also those that end after the end; `answered_s`: of frames 1, 2, ...; `epochs`: 1, 2,
    ...
    """

    parts: tuple[Part, ...]
    answered_s: tuple[float, ...]
    epochs: tuple[Epoch, ...]


def served(
    costs: Costs, plans: Sequence[tuple[float, Plan]], *, in_flight: int, seconds: float, build_s: float = 0.0
) -> Served:
    """Simulate a client that keeps `in_flight` frames in flight, in one stream, from 0 s to `seconds`.

    `plans` are proposed at their times, the first at 0. A place builds each stage of a plan in `build_s`, while it goes
    on computing; the first plan's stages take no time.
    """
    paper = _Paper(costs, in_flight, build_s)
    paper.serve(plans, seconds)
    epochs = tuple(Epoch(at_s, paper.retired_s.get(number, math.inf)) for number, at_s in paper.live_s.items())
    parts = tuple(sorted(paper.parts, key=lambda part: (part.start_s, part.place)))
    return Served(parts, tuple(paper.answered_s), epochs)


class _Paper(PaperDaemon):
    """Records what the lifecycle does with proposed plans."""

    def __init__(self, costs: Costs, in_flight: int, build_s: float) -> None:
        places = [place.name for place in costs.places]
        lifecycle = Lifecycle(PlanRules(len(costs.layers), tuple(places)), in_flight, Policy())
        super().__init__(lifecycle.handle, in_flight, build_s)
        self.parts: list[Part] = []
        self.live_s: dict[int, float] = {}
        self.retired_s: dict[int, float] = {}
        self._evaluator = CostsEvaluator(costs)
        self._service_s: dict[int, tuple[float, ...]] = {}

    def serve(self, plans: Sequence[tuple[float, Plan]], seconds: float) -> None:
        for number, (at_s, plan) in enumerate(plans, start=1):
            self.at(at_s, ev.PlanProposed(ev.Owner.TUNER, number, plan, under=number - 1 or None))
        self.start()
        self.run(seconds)

    def service_s(self, part: do.RunPart, place: str) -> float:
        what = part.descriptor
        service_s = self._service_s[what.epoch][what.stage]
        end_s = self.now_s + service_s
        self.parts.append(Part(what.frame, what.stage, what.epoch, place, part.ready_s, self.now_s, end_s))
        return service_s

    def hear(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.EpochStarted(epoch=epoch, plan=plan):
                self._service_s[epoch] = self._evaluator.measurement_of(plan).service_s
            case do.Settled(epoch=epoch, ending=do.Ending.LIVE) if epoch is not None:
                self.live_s[epoch] = self.now_s
            case do.EpochEnded(epoch=epoch):
                self.retired_s[epoch] = self.now_s
