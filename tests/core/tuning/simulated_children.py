"""The tuner's process and the placer's as the daemon meets them: they answer in order, late, wrongly, or not at all.

What they say is appended to `said`, for the world to deliver; what reaches a dead one is lost.
"""

from __future__ import annotations

import random
from collections import deque
from itertools import groupby
from typing import Any, Final

import numpy as np

from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.model.spans import Span
from shisha_rt.outcome import Outcome
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.strategies import Balance
from shisha_rt.planner.tune import ShishaTuner, shisha
from tests.core.lifecycle.random_plans import LAYERS, plain_plan

DEVICES: Final = ("d0", "d1")
OPERATORS_PER_LAYER: Final = 2
OPERATOR_S: Final = 1e-3

COSTS: Final = OperatorCosts(
    tuple(Device(name, "test", "onnxruntime", name, "fp32") for name in DEVICES),
    np.full((LAYERS * OPERATORS_PER_LAYER, len(DEVICES)), OPERATOR_S),
)
"""As known; a world may be other."""


def operators_of(first: int, last: int) -> Span:
    return OPERATORS_PER_LAYER * first, OPERATORS_PER_LAYER * (last + 1) - 1


class Tuner:
    """Algorithm 2 itself if `honest`; else one that tries whatever comes to its mind, and ends with that, too."""

    def __init__(self, rng: random.Random, *, honest: bool) -> None:
        self.rng = rng
        self.honest = honest
        self.healing = False
        self.alive = True
        self.inbox: deque[tm.ToTuner] = deque()
        self.said: deque[tm.FromTuner] = deque()
        self._begun: tm.Begin | None = None
        self._walk: tuple[ShishaTuner, Any] | None = None
        self._left = 0

    def hear(self, message: tm.ToTuner) -> None:
        if self.alive:
            self.inbox.append(message)

    def die(self) -> None:
        self.alive = False
        self.inbox.clear()
        self._begun = None

    def work(self) -> None:
        """Take one message."""
        if not self.alive or not self.inbox:
            return
        message = self.inbox.popleft()
        match message:
            case tm.Begin():
                self._begun, self._left = message, self.rng.randint(1, 4)
                self._begin_walk(message) if self.honest else self._improvise(message)
            case tm.Measured() if self._begun is not None and message.run == self._begun.run:
                self._step_walk(message) if self.honest else self._improvise(self._begun)
            case tm.Break():
                self._begun = None

    def _begin_walk(self, begin: tm.Begin) -> None:
        balance: Balance = "nlfep"
        tuner = shisha(begin.start, begin.places, alpha=begin.alpha, balance=balance, order=begin.order)
        state, proposal = tuner.init()
        self._walk = tuner, state
        self._try(begin, proposal.plan)

    def _step_walk(self, measured: tm.Measured) -> None:
        assert self._walk is not None
        assert self._begun is not None
        tuner, state = self._walk
        state, proposal = tuner.step(state, measured.measurement)
        self._walk = tuner, state
        if proposal.final:
            self._finish(self._begun, proposal.plan)
        else:
            self._try(self._begun, proposal.plan)

    def _improvise(self, begin: tm.Begin) -> None:
        self._left -= 1
        plan = plain_plan(self.rng, [place.name for place in begin.places])
        if not self.healing and self.rng.random() < 0.1:
            plan = Plan(plan.stages[1:])  # layers are missing, or all of them: the gate sees to that
        if self._left >= 0:
            self._try(begin, begin.start if self.rng.random() < 0.3 else plan)
        else:
            self._finish(begin, plan)

    def _try(self, begin: tm.Begin, plan: Plan) -> None:
        self.said.append(tm.Try(begin.run, plan, "it may be better"))

    def _finish(self, begin: tm.Begin, plan: Plan) -> None:
        self.said.append(tm.Finished(begin.run, plan, "enough"))


class Placer:
    """Chooses for each stage the devices that are quickest under the ratios that it is told; `slower` is the truth."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.healing = False
        self.alive = True
        self.inbox: deque[pm.Solve] = deque()
        self.said: deque[pm.FromPlacer] = deque()
        self.slower: dict[tuple[str, str], float] = {}

    def hear(self, message: pm.ToPlacer) -> None:
        assert isinstance(message, pm.Solve)
        if self.alive:
            self.inbox.append(message)

    def die(self) -> None:
        self.alive = False
        self.inbox.clear()

    def work(self) -> None:
        """Answer one request."""
        if not self.alive or not self.inbox:
            return
        asked = self.inbox.popleft()
        if not self.healing and self.rng.random() < 0.1:
            self.said.append(pm.NotSolved(asked.request, "operator 3 runs on no device"))
            return
        ratios = {(place, device): ratio for place, device, ratio in asked.ratios}
        self.said.append(pm.Solved(asked.request, self._stages(asked.plan, ratios), 0.001))

    def _stages(self, plan: Plan, ratios: dict[tuple[str, str], float]) -> tuple[StagePlacement, ...]:
        solved = []
        for stage in plan.stages:
            place, half = stage.place, stage.layer_count * OPERATORS_PER_LAYER // 2
            mixes = [(a,) * half + (b,) * half for a in DEVICES for b in DEVICES]
            times_s = [segments_s(place, mix, ratios) for mix in mixes]
            best = min(range(len(mixes)), key=lambda i: sum(times_s[i]))
            solved.append(StagePlacement(mixes[best], sum(times_s[best]), times_s[best], None, Outcome.FEASIBLE))
        return tuple(solved)

    def taken_s(self, place: str, devices: tuple[str, ...]) -> tuple[float, ...]:
        return segments_s(place, devices, self.slower)


def segments_s(place: str, devices: tuple[str, ...], slower: dict[tuple[str, str], float]) -> tuple[float, ...]:
    runs = [(device, len(list(run))) for device, run in groupby(devices)]
    return tuple(count * OPERATOR_S * slower.get((place, device), 1.0) for device, count in runs)
