"""Which operator runs on which device, in every stage of every plan; and again, when devices are not as predicted.

Each proposal goes by the placer's process before it becomes an epoch, so a move of a layer brings the new placements
of both its stages with it. While a plan is live, what its segments take is compared with what was predicted. A device
that is slower or faster than that, beyond noise (see `device_ratios`), is corrected for; then the live plan is placed
anew, and if some stage gains by it the new placement is proposed as an epoch like any other. Not while the tuner
searches: its next proposals are placed with the corrected costs anyway, and its measurements would be spoilt.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from shisha_rt.lifecycle.events import Owner, PlanNotPlaced, PlanPlaced, PlanProposed
from shisha_rt.lifecycle.instructions import Ending, PlaceOperators, Settled
from shisha_rt.plan.form import brief
from shisha_rt.plan.plan import Plan
from shisha_rt.tuning import events as ev
from shisha_rt.tuning import placer_messages as pm
from shisha_rt.tuning.desk import Desk
from shisha_rt.tuning.device_ratios import DeviceRatios
from shisha_rt.tuning.instructions import CountSolve, Decision, TellPlacer
from shisha_rt.tuning.state import Searching, Serving
from shisha_rt.wire import journal

FRAMES: Final = 16
"""Frames of a stage, none of them looked at before, by which its segments are judged."""

_WORTH: Final = 0.98
"""A stage gains if its new placement is predicted to take at most so much of the present one's time."""

_REST_S: Final = 5.0
"""Between two changes of placement: on a busy host what devices take goes up and down with what else runs there."""

_REMEMBERED: Final = 32
"""Placed plans whose predictions are kept; far fewer are ever on their way to being live."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is predicted of a placed plan, under the ratios of `version`, and why it was placed."""

    stages: tuple[pm.StageSolved, ...]
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Asked:
    """A plan with the placer. `place`: whose proposal it is; None: the live plan of epoch `under`, placed anew."""

    plan: Plan
    version: int
    reason: str
    place: PlaceOperators | None
    under: int | None = None


class Placing:
    """Follows the placer's process. `devices` names those of each place.

    `known`: what is predicted of the live plan, and its epoch.
    """

    def __init__(self, serving: Serving, tuner: Searching, solver: str, devices: Mapping[str, Collection[str]]) -> None:
        self.solver = solver
        self.known: tuple[int, Predicted] | None = None
        self._serving = serving
        self._tuner = tuner
        self._devices = devices
        self._ratios = DeviceRatios()
        self._version = 0  # of the ratios
        self._asked: dict[int, _Asked] = {}
        self._predictions: dict[tuple[object, ...], Predicted] = {}
        self._taken_s: defaultdict[int, deque[tuple[float, ...]]] = defaultdict(lambda: deque(maxlen=FRAMES))
        self._replacing: int | None = None
        self._rest_until_s = -math.inf
        self._desk = Desk()

    def handle(self, event: ev.PlacingEvent, now_s: float) -> list[Decision]:
        """Apply one event; what is decided is to be carried out in its order before the next event."""
        self._desk.now_s = now_s
        _APPLY[type(event)](self, event)
        return self._desk.take()

    # --- placing ----------------------------------------------------------------------------------------------

    def _place(self, wanted: PlaceOperators) -> None:
        self._ask(_Asked(wanted.plan, self._version, "a plan was proposed", wanted))

    def _ask(self, asked: _Asked) -> int:
        for stage in asked.plan.stages:
            self._ratios.assume(stage.team_name, self._devices[stage.place])
        request = self._desk.next_number()
        self._asked[request] = asked
        self._send_solve(request)
        return request

    def _send_solve(self, request: int) -> None:
        ratios = tuple((place, device, ratio) for (place, device), ratio in self._ratios.ratios.items())
        self._desk.decide(TellPlacer(pm.Solve(request, brief(self._asked[request].plan), ratios)))

    def _placer_said(self, said: ev.PlacerSaid) -> None:
        message = said.message
        asked = self._asked.pop(message.request, None)
        if asked is None:
            return
        place = asked.place
        match message:
            case pm.NotSolved(reason=reason) if place is not None:
                self._desk.decide(PlanNotPlaced(place.owner, place.proposal, reason))
            case pm.NotSolved(reason=reason):
                self._not_placed_anew(asked, reason)
            case pm.Solved():
                plan = self._solved(asked, message)
                if place is not None:
                    self._desk.decide(PlanPlaced(place.owner, place.proposal, plan))
                else:
                    self._placed_anew(asked, plan)

    def _placer_died(self, died: ev.PlacerDied) -> None:
        """Its successor is asked whatever has not been answered."""
        self._desk.write(journal.PlacerEnded(reason=died.reason))
        for request in self._asked:
            self._send_solve(request)

    def _solved(self, asked: _Asked, found: pm.Solved) -> Plan:
        stages = list(zip(asked.plan.stages, found.stages, strict=True))
        plan = Plan(tuple(replace(stage, placement=solved.devices) for stage, solved in stages))
        self._desk.decide(CountSolve(self.solver))
        self._desk.write(
            journal.PlacementSolved(
                plan=str(plan),
                reason=asked.reason,
                solver=self.solver,
                seconds=round(found.solve_s, 6),
                stages=tuple(
                    journal.StageSegments(stage.team_name, solved.cost_s, _in_short(solved)) for stage, solved in stages
                ),
            )
        )
        self._predictions.pop(_key(plan), None)  # placed again, it is the latest: the first are forgotten first
        self._predictions[_key(plan)] = Predicted(found.stages, asked.version, asked.reason)
        if len(self._predictions) > _REMEMBERED:
            del self._predictions[next(iter(self._predictions))]
        return plan

    # --- what is live -----------------------------------------------------------------------------------------

    def _settled(self, end: Settled) -> None:
        if end.ending is Ending.LIVE and end.epoch is not None:
            known = self._predictions.get(_key(end.plan))
            self.known = None if known is None else (end.epoch, known)
            self._taken_s.clear()
        for request, place in self.asked.items():
            if place is not None and (place.owner, place.proposal) == (end.owner, end.proposal):
                del self._asked[request]  # it was not placed in time
        if end.owner is Owner.PLACER and end.proposal == self._replacing:
            self._replacing = None

    def _part_taken(self, part: ev.PartTaken) -> None:
        if self.known is not None and part.epoch == self.known[0] and part.segments_s:
            self._taken_s[part.stage].append(part.segments_s)

    def _machine_changed(self, changed: ev.MachineChanged) -> None:
        """What segments took before says nothing of it."""
        self._taken_s.clear()

    def _look(self, look: ev.Look) -> None:
        live = self._serving.live
        if self.known is None or live is None or live[0] != self.known[0]:
            return
        for index, stage in enumerate(live[1].stages):
            if len(self._taken_s[index]) == FRAMES:
                self._observe(index, stage.team_name, [median(s) for s in zip(*self._taken_s[index], strict=True)])
                self._taken_s[index].clear()
        rested = self._desk.now_s >= self._rest_until_s and self._replacing is None
        if self.known[1].version != self._version and rested and not self._tuner.searching:
            self._place_anew(*live)

    def _observe(self, index: int, place: str, taken_s: Sequence[float]) -> None:
        assert self.known is not None
        epoch, known = self.known
        solved = known.stages[index]
        devices = [device for device, _ in solved.segments]
        before = self._ratios.ratios
        if not self._ratios.observe(place, devices, solved.segments_s, taken_s):
            return
        self._version += 1
        changes = {
            device: self._ratios.ratios.get((place, device), 1.0) / before.get((place, device), 1.0)
            for device in set(devices)
        }
        segments_s = tuple(s * changes[device] for s, device in zip(solved.segments_s, devices, strict=True))
        corrected = pm.StageSolved(solved.devices, sum(segments_s), segments_s, None, solved.outcome, solved.breaks)
        stages = known.stages
        self.known = epoch, replace(known, stages=(*stages[:index], corrected, *stages[index + 1 :]))
        for device, change in changes.items():
            if change != 1:
                ratio = self._ratios.ratios.get((place, device), 1.0)
                self._desk.write(journal.DeviceRatio(place=place, device=device, ratio=round(ratio, 4)))

    # --- placing anew -----------------------------------------------------------------------------------------

    def _place_anew(self, epoch: int, plan: Plan) -> None:
        ratios = [f"{device} on {place} x{ratio:.3g}" for (place, device), ratio in self._ratios.ratios.items()]
        reason = f"devices take other than was predicted: {', '.join(ratios) or 'as at first again'}"
        self._replacing = self._ask(_Asked(plan, self._version, reason, None, epoch))

    def _not_placed_anew(self, asked: _Asked, reason: str) -> None:
        self._replacing = None
        self._desk.write(journal.PlacementRefused(reason=reason))
        if self.known is not None and self.known[0] == asked.under:
            self.known = self.known[0], replace(self.known[1], version=asked.version)

    def _placed_anew(self, asked: _Asked, plan: Plan) -> None:
        """Propose the new placement if a stage gains by it; the live plan goes on under the new predictions otherwise.

        Under another epoch than that of the plan that was placed it comes too late, and in a search that has begun
        meanwhile at a bad time: it is asked for again after that.
        """
        self._replacing = None
        if self.known is None or self.known[0] != asked.under or self._tuner.searching:
            return
        epoch, old = self.known
        new = self._predictions[_key(plan)]
        pairs = list(zip(new.stages, old.stages, strict=True))
        if any(a.devices != b.devices and a.cost_s <= _WORTH * b.cost_s for a, b in pairs):
            self.known = epoch, replace(old, version=asked.version)  # not twice, should the proposal come to nothing
            self._rest_until_s = self._desk.now_s + _REST_S
            self._replacing = self._desk.next_number()
            self._desk.decide(PlanProposed(Owner.PLACER, self._replacing, plan, epoch))
        else:
            self.known = (
                epoch,
                Predicted(tuple(a if a.devices == b.devices else b for a, b in pairs), asked.version, old.reason),
            )

    # --- what it tells ----------------------------------------------------------------------------------------

    @property
    def asked(self) -> Mapping[int, PlaceOperators | None]:
        """What the placer has not answered yet, and for whose proposal; None: for the live plan, placed anew."""
        return {request: asked.place for request, asked in self._asked.items()}

    @property
    def replacing(self) -> int | None:
        """The request for the live plan, placed anew; once that is answered, the proposal."""
        return self._replacing

    def describe(self, epoch: int, index: int, taken_s: Sequence[float]) -> dict[str, Any] | None:
        """Of a stage of the live plan, for `status`; None while nothing is known of it.

        `taken_s`: what its segments took lately, or empty.
        """
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
        """What a stage of the live plan is predicted to take at the full speed of its place."""
        return None if self.known is None or epoch != self.known[0] else self.known[1].stages[index].cost_s


def _key(plan: Plan) -> tuple[object, ...]:
    """Stages do not tell themselves apart by their placements; here they have to."""
    return tuple((stage, stage.placement) for stage in plan.stages)


def _in_short(solved: pm.StageSolved) -> str:
    """For instance `ort_serial 12, openvino 3, ort_serial 40`: operators on each device, segment by segment."""
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
