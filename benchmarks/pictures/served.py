"""Frames served on paper: the daemon's own lifecycle in virtual time, each part as long as its costs say. Pure.

What is drawn is thus what `core/lifecycle/` would do with these plans: which frame is dealt to whom, which epoch it
takes, and when an epoch is retired. A hand-over takes no time, and neither does the daemon.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """One frame at one stage: ready, started and ended."""

    frame: int
    stage: int
    epoch: int
    place: str
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """A plan from the moment that its stages are built to its last frame; inf where that is beyond the end."""

    live_s: float
    retired_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """`parts` by their starts, those included that end too late; `answered_s` of frame 1, 2, ...; `epochs` 1, 2, ..."""

    parts: tuple[Part, ...]
    answered_s: tuple[float, ...]
    epochs: tuple[Epoch, ...]


def served(
    costs: Costs, plans: Sequence[tuple[float, Plan]], *, in_flight: int, seconds: float, build_s: float = 0.0
) -> Served:
    """A client keeps `in_flight` frames on the way, in one stream, from 0 s to `seconds`.

    `plans` are proposed at their times, the first at 0. A place builds each stage of a plan in `build_s`, beside
    whatever it runs, but for the first plan's.
    """
    paper = _Paper(costs, in_flight, build_s)
    paper.serve(plans, seconds)
    epochs = tuple(Epoch(at_s, paper.retired_s.get(number, math.inf)) for number, at_s in paper.live_s.items())
    parts = tuple(sorted(paper.parts, key=lambda part: (part.start_s, part.place)))
    return Served(parts, tuple(paper.answered_s), epochs)


@dataclass(slots=True)
class _Worker:
    waiting: deque[do.RunPart] = field(default_factory=deque)
    busy: bool = False


class _Paper:
    """The lifecycle, and what carries its instructions out."""

    def __init__(self, costs: Costs, in_flight: int, build_s: float) -> None:
        self.parts: list[Part] = []
        self.answered_s: list[float] = []
        self.live_s: dict[int, float] = {}
        self.retired_s: dict[int, float] = {}
        self._evaluator = CostsEvaluator(costs)
        places = [place.name for place in costs.places]
        self._lifecycle = Lifecycle(PlanRules(len(costs.layers), tuple(places)), in_flight, Policy())
        self._build_s = build_s
        self._service_s: dict[int, tuple[float, ...]] = {}
        self._workers: dict[int, tuple[str, _Worker]] = {}
        self._coming: list[tuple[float, int, ev.Event]] = []
        self._count = 0
        self._frames = 0
        self._in_flight = in_flight

    def serve(self, plans: Sequence[tuple[float, Plan]], seconds: float) -> None:
        self._at(0.0, ev.Tick())
        for number, (at_s, plan) in enumerate(plans, start=1):
            self._at(at_s, ev.PlanProposed(ev.Owner.TUNER, number, plan, under=number - 1 or None))
        for _ in range(self._in_flight):
            self._arrival(0.0)
        while self._coming and self._coming[0][0] <= seconds:
            now_s, _, event = heapq.heappop(self._coming)
            if isinstance(event, ev.PartDone):
                self._run_next(self._workers[event.descriptor.incarnation], now_s, done=True)
            for instruction in self._lifecycle.handle(event, now_s):
                self._carry_out(instruction, now_s)

    def _at(self, at_s: float, event: ev.Event) -> None:
        self._count += 1
        heapq.heappush(self._coming, (at_s, self._count, event))

    def _arrival(self, at_s: float) -> None:
        self._frames += 1
        self._at(at_s, ev.FrameArrived(self._frames, "client", "stream", 1))

    def _carry_out(self, instruction: do.Instruction, now_s: float) -> None:
        match instruction:
            case do.Start(place, incarnation):
                self._workers[incarnation] = (place, _Worker())
                self._at(now_s, ev.WorkerReady(incarnation))
            case do.EpochStarted(epoch=epoch, plan=plan):
                self._service_s[epoch] = self._evaluator.measurement_of(plan).service_s
            case do.PrepareStage(incarnation=incarnation, epoch=epoch, stage=stage):
                ready_s = now_s + self._build_s * (epoch > 1)
                self._at(ready_s, ev.StagePrepared(epoch, stage, incarnation))
            case do.Settled(epoch=epoch, ending=do.Ending.LIVE) if epoch is not None:
                self.live_s[epoch] = now_s
            case do.EpochEnded(epoch=epoch):
                self.retired_s[epoch] = now_s
            case do.RunPart(descriptor=descriptor):
                of = self._workers[descriptor.incarnation]
                of[1].waiting.append(instruction)
                self._run_next(of, now_s)
            case do.Deliver():
                self.answered_s.append(now_s)
                self._arrival(now_s)

    def _run_next(self, of: tuple[str, _Worker], now_s: float, *, done: bool = False) -> None:
        place, worker = of
        worker.busy = worker.busy and not done
        if worker.busy or not worker.waiting:
            return
        part = worker.waiting.popleft()
        what = part.descriptor
        end_s = now_s + self._service_s[what.epoch][what.stage]
        self.parts.append(Part(what.frame, what.stage, what.epoch, place, part.ready_s, now_s, end_s))
        worker.busy = True
        self._at(end_s, ev.PartDone(what))
