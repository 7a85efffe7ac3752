"""Which operator runs on which device, in every stage of every plan; chosen anew when devices differ from predictions.

Each proposal passes through the placer's process before it becomes an epoch, so after a move of a layer both its stages
are placed anew. While a plan is live, times of its segments are compared with predictions. If a device is slower or
faster than predicted, beyond noise (see `device_ratios`), its costs are corrected and the live plan is placed anew; if
some stage gains by it, the new placement is proposed like any other plan. This waits while the tuner searches: it would
spoil the tuner's measurements, and the tuner's next proposals are placed with the corrected costs anyway.

A plan that is needed because the live one has lost a place does not wait for the placer, which may take a minute: it is
placed at once, by a simple rule, and placed anew when it is live, even during a search.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Owner, PlanNotPlaced, PlanPlaced, PlanProposed
from shisha_rt.core.lifecycle.instructions import Ending, PlaceOperators, Settled
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning.device_ratios import DeviceRatios
from shisha_rt.core.tuning.greedy_placement import GreedyPlacement
from shisha_rt.core.tuning.instructions import CountSolve, Decided, PlanningOutbox, TellPlacer
from shisha_rt.core.tuning.state import Serving
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.plan.plan import Plan

FRAMES: Final = 16
"""Frames of a stage by which its segments are judged; each frame is used once."""

_WORTH: Final = 0.98
"""A stage gains if its new placement is predicted to take at most this fraction of the present one's time."""

_REST_S: Final = 5.0
"""Least time between two changes of placement: on a busy host devices' times vary with what else runs there."""

_DEATHS: Final = 2
"""Deaths of the placer over one request, before the request is given up: one may have been an accident."""

_REMEMBERED: Final = 32
"""Placed plans whose predictions are kept; far fewer are ever on their way to being live."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions for a placed plan, under the device ratios of `version`, and why it was placed."""

    stages: tuple[StagePlacement, ...]
    version: int
    reason: str


@dataclass(slots=True)
class _Request:
    """A plan that the placer has been asked to place.

    `proposed`: the proposal it belongs to; None: the live plan of epoch `under`, placed anew. `deaths`: how many placer
    processes have died while they worked on it.
    """

    plan: Plan
    version: int
    reason: str
    proposed: PlanProposed | None
    under: int | None = None
    deaths: int = 0


class Placing:
    """Has the placer's process place the operators of proposed plans, and of the live plan anew.

    `known`: the live plan's epoch, and the predictions for it; None if it was placed at once, without the placer.
    `is_tuned`: whether a search runs now, which must not be disturbed.
    """

    def __init__(self, serving: Serving, is_tuned: Callable[[], bool], solver: str, at_once: GreedyPlacement) -> None:
        self.solver = solver
        self.known: tuple[int, Predicted] | None = None
        self._serving = serving
        self._is_tuned = is_tuned
        self._at_once = at_once
        self._ratios = DeviceRatios()
        self._version = 0  # of the ratios
        self._requests: dict[int, _Request] = {}  # the placer works in this order
        self._predictions: dict[tuple[object, ...], Predicted] = {}
        self._taken_s: defaultdict[int, deque[tuple[float, ...]]] = defaultdict(lambda: deque(maxlen=FRAMES))
        self._replacing: int | None = None  # request that places the live plan anew; once answered, the proposal
        self._unplaceable: int | None = None  # the live epoch, if the placer cannot place its plan
        self._rest_until_s = -math.inf
        self._outbox = PlanningOutbox()

    def handle(self, event: ev.Heard, now_s: float) -> list[Decided]:
        """Apply one event; what is decided is to be carried out in its order before the next event."""
        self._outbox.now_s = now_s
        _APPLY[type(event)](self, event)
        return self._outbox.take()

    @property
    def hears(self) -> Collection[type]:
        """The types of events that `handle` takes."""
        return _APPLY.keys()

    # --- placing ----------------------------------------------------------------------------------------------

    def _place(self, wanted: PlaceOperators) -> None:
        proposed = wanted.proposed
        self._assume(proposed.plan)
        plan = self._at_once.placed(proposed.plan, self._ratios.ratios) if self._is_awaited(proposed) else None
        if plan is not None:
            self._outbox.write(event_log.PlacedAtOnce(plan=str(plan)))
            self._outbox.decide(PlanPlaced(proposed, plan))
            return
        self._ask(_Request(proposed.plan, self._version, "a plan was proposed", proposed))

    def _is_awaited(self, proposed: PlanProposed) -> bool:
        """Whether serving waits for this plan: the live one has lost a place, and the daemon proposes this instead."""
        live = self._serving.live
        lost = live is not None and not set(live[1].places) <= set(self._serving.available)
        return proposed.owner is Owner.DAEMON and lost

    def _assume(self, plan: Plan) -> None:
        """Assume ratios for the devices of the plan's places that have not been observed yet."""
        for stage in plan.stages:
            self._ratios.assume(stage.team_name, self._at_once.devices(stage.place))

    def _ask(self, request: _Request) -> int:
        number = self._outbox.next_number()
        self._requests[number] = request
        self._send_solve(number, request.plan)
        return number

    def _send_solve(self, number: int, plan: Plan) -> None:
        ratios = tuple((place, device, ratio) for (place, device), ratio in self._ratios.ratios.items())
        self._outbox.decide(TellPlacer(pm.Solve(number, plan, ratios)))

    def _placer_said(self, answered: ev.PlacerSaid) -> None:
        message = answered.message
        request = self._requests.pop(message.request, None)
        if request is None or not self._is_wanted(request):
            return
        match message:
            case pm.NotSolved(reason=reason):
                self._not_solved(request, reason)
            case pm.Solved():
                plan = self._solved(request, message)
                if request.proposed is not None:
                    self._outbox.decide(PlanPlaced(request.proposed, plan))
                else:
                    self._placed_anew(request, plan)

    def _placer_died(self, died: ev.PlacerDied) -> None:
        """Send the new placer process all unanswered requests, except one over which several processes have died."""
        self._outbox.write(event_log.PlacerEnded(reason=died.reason))
        first = next(iter(self._requests), None)
        self._requests = {number: request for number, request in self._requests.items() if self._is_wanted(request)}
        if first is not None and first in self._requests:
            self._requests[first].deaths += 1
            if self._requests[first].deaths >= _DEATHS:
                reason = f"the placer has died of it {_DEATHS} times: {died.reason}"
                self._not_solved(self._requests.pop(first), reason)
        for number, request in self._requests.items():
            self._send_solve(number, request.plan)

    def _is_wanted(self, request: _Request) -> bool:
        """Whether the answer is still needed: the proposal may have ended, as it was not placed in time."""
        return request.proposed is None or any(proposed is request.proposed for proposed in self._serving.proposals)

    def _not_solved(self, request: _Request, reason: str) -> None:
        if request.proposed is not None:
            self._outbox.decide(PlanNotPlaced(request.proposed, reason))
            return
        self._replacing = None
        self._unplaceable = request.under
        self._outbox.write(event_log.PlacementRefused(reason=reason))
        if self.known is not None and self.known[0] == request.under:
            self.known = self.known[0], replace(self.known[1], version=request.version)

    def _solved(self, request: _Request, answer: pm.Solved) -> Plan:
        stages = list(zip(request.plan.stages, answer.stages, strict=True))
        paced_s = answer.paced_s or ((),) * len(stages)
        plan = Plan(
            tuple(
                replace(stage, placement=solved.devices, paced_s=s)
                for (stage, solved), s in zip(stages, paced_s, strict=True)
            )
        )
        self._outbox.decide(CountSolve(self.solver))
        self._outbox.write(
            event_log.PlacementSolved(
                plan=str(plan),
                reason=request.reason,
                solver=self.solver,
                seconds=round(answer.solve_s, 6),
                stages=tuple(
                    event_log.StageSegments(stage.team_name, solved.cost_s, _in_short(solved))
                    for stage, solved in stages
                ),
            )
        )
        self._predictions.pop(_key(plan), None)  # placed again, it is the latest: the first are forgotten first
        self._predictions[_key(plan)] = Predicted(answer.stages, request.version, request.reason)
        if len(self._predictions) > _REMEMBERED:
            del self._predictions[next(iter(self._predictions))]
        return plan

    # --- what is live -----------------------------------------------------------------------------------------

    def _settled(self, end: Settled) -> None:
        if end.ending is Ending.LIVE and end.epoch is not None:
            known = self._predictions.get(_key(end.plan))
            self.known = None if known is None else (end.epoch, known)
            self._taken_s.clear()
        if (end.proposed.owner, end.proposed.number) == (Owner.PLACER, self._replacing):
            self._replacing = None

    def _part_taken(self, part: ev.PartTaken) -> None:
        if self.known is not None and part.epoch == self.known[0] and part.segments_s:
            self._taken_s[part.stage].append(part.segments_s)

    def _machine_changed(self, changed: ev.MachineChanged) -> None:
        """Forget what segments took: the machine has changed."""
        self._taken_s.clear()

    def _look(self, look: ev.Look) -> None:
        live = self._serving.live
        rested = self._outbox.now_s >= self._rest_until_s and self._replacing is None
        if live is None or not any(stage.placement for stage in live[1].stages):
            return
        if self.known is None:
            if rested and self._unplaceable != live[0]:
                self._place_anew(*live, "it was placed at once, as the plan before had lost a place")
            return
        for index, stage in enumerate(live[1].stages):
            if len(self._taken_s[index]) == FRAMES:
                self._observe(index, stage.team_name, [median(s) for s in zip(*self._taken_s[index], strict=True)])
                self._taken_s[index].clear()
        if not rested or self._is_tuned():
            return
        self._give_chances(live[1])
        if self.known[1].version != self._version:
            self._place_anew(*live, f"devices take other than was predicted: {self._ratios}")

    def _give_chances(self, plan: Plan) -> None:
        """Let devices that are avoided for being slow be tried again: they may have recovered."""
        assert self.known is not None
        stages = list(zip(plan.stages, self.known[1].stages, strict=True))
        used = {(stage.team_name, device) for stage, solved in stages for device in solved.devices}
        for name, lead in {stage.team_name: stage.place for stage in plan.stages}.items():
            idle = [device for device in self._at_once.devices(lead) if (name, device) not in used]
            for device in self._ratios.give_chances(name, idle, self._outbox.now_s):
                self._version += 1
                self._tell_ratio(name, device)

    def _observe(self, index: int, place: str, taken_s: Sequence[float]) -> None:
        assert self.known is not None
        epoch, known = self.known
        solved = known.stages[index]
        devices = [device for device, _ in solved.segments]
        before = self._ratios.ratios
        if not self._ratios.observe(place, devices, solved.segments_s, taken_s, self._outbox.now_s):
            return
        self._version += 1
        changes = {
            device: self._ratios.ratios.get((place, device), 1.0) / before.get((place, device), 1.0)
            for device in set(devices)
        }
        segments_s = tuple(s * changes[device] for s, device in zip(solved.segments_s, devices, strict=True))
        corrected = replace(solved, cost_s=sum(segments_s), segments_s=segments_s, lower_bound_s=None)
        stages = known.stages
        self.known = epoch, replace(known, stages=(*stages[:index], corrected, *stages[index + 1 :]))
        for device, change in changes.items():
            if change != 1:
                self._tell_ratio(place, device)

    def _tell_ratio(self, place: str, device: str) -> None:
        ratio = self._ratios.ratios.get((place, device), 1.0)
        self._outbox.write(event_log.DeviceRatio(place=place, device=device, ratio=round(ratio, 4)))

    # --- placing anew -----------------------------------------------------------------------------------------

    def _place_anew(self, epoch: int, plan: Plan, reason: str) -> None:
        self._assume(plan)
        self._replacing = self._ask(_Request(plan, self._version, reason, None, epoch))

    def _placed_anew(self, request: _Request, plan: Plan) -> None:
        """Propose the new placement if a stage gains by it; otherwise use the new predictions for the live plan.

        It is dropped if another epoch is live by now, or if a search has begun: after that it is asked for again.
        """
        self._replacing = None
        live = self._serving.live
        if live is None or live[0] != request.under:
            return
        new = self._predictions[_key(plan)]
        if self.known is None:
            if _key(plan) == _key(live[1]):
                self.known = live[0], new
            else:
                self._propose_anew(plan, live[0])
            return
        if self._is_tuned():
            return
        epoch, old = self.known
        pairs = list(zip(new.stages, old.stages, strict=True))
        if any(a.devices != b.devices and a.cost_s <= _WORTH * b.cost_s for a, b in pairs):
            self.known = epoch, replace(old, version=request.version)  # not twice, if the proposal fails
            self._propose_anew(plan, epoch)
        else:
            self.known = (
                epoch,
                Predicted(tuple(a if a.devices == b.devices else b for a, b in pairs), request.version, old.reason),
            )

    def _propose_anew(self, plan: Plan, epoch: int) -> None:
        self._rest_until_s = self._outbox.now_s + _REST_S
        self._replacing = self._outbox.propose(Owner.PLACER, plan, epoch)

    # --- what others may ask ----------------------------------------------------------------------------------

    def describe(self, epoch: int, index: int, taken_s: Sequence[float]) -> dict[str, Any] | None:
        """Describe a stage for `status`; None: nothing is known. `taken_s`: what its segments took lately, or empty."""
        if self.known is None or epoch != self.known[0]:
            return None
        known = self.known[1]
        solved = known.stages[index]
        measured_s: Sequence[float | None] = taken_s or [None] * len(solved.segments_s)
        segments = [
            {"device": device, "operators": operators, "predicted_s": predicted_s, "measured_s": segment_s}
            for (device, operators), predicted_s, segment_s in zip(
                solved.segments, solved.segments_s, measured_s, strict=True
            )
        ]
        return {
            "solver": self.solver,
            "reason": known.reason,
            "predicted_s": solved.cost_s,
            "lower_bound_s": solved.lower_bound_s,
            "outcome": solved.outcome,
            "segments": segments,
        }

    def predicted_s(self, epoch: int, index: int) -> float | None:
        """Predicted seconds of a stage of the live plan, at the full speed of its place; None: not known."""
        return None if self.known is None or epoch != self.known[0] else self.known[1].stages[index].cost_s


def _key(plan: Plan) -> tuple[object, ...]:
    """Key of a plan with its placements, and what paces these: the equality of stages ignores both."""
    return tuple((stage, stage.placement, stage.paced_s) for stage in plan.stages)


def _in_short(solved: StagePlacement) -> str:
    """Operators on each device, segment by segment, as in `ort_serial 12, openvino 3, ort_serial 40`."""
    return ", ".join(f"{device} {operators}" for device, operators in solved.segments)


_APPLY: Final[Mapping[type, Callable[[Placing, Any], None]]] = {
    PlaceOperators: Placing._place,
    Settled: Placing._settled,
    ev.PartTaken: Placing._part_taken,
    ev.PlacerSaid: Placing._placer_said,
    ev.PlacerDied: Placing._placer_died,
    ev.MachineChanged: Placing._machine_changed,
    ev.Look: Placing._look,
}
