"""Which operator runs on which device, in every stage of every plan; and again, when devices are not as predicted.

Each proposal goes by the placer's process before it becomes an epoch, so a move of a layer brings the new placements
of both its stages with it. While a plan is live, what its segments take is compared with what was predicted. A device
that is slower or faster than that, beyond noise (see `device_ratios`), is corrected for; then the live plan is placed
anew, and if some stage gains by it the new placement is proposed as an epoch like any other. Not while the tuner
searches: its next proposals are placed with the corrected costs anyway, and its measurements would be spoilt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from shisha_rt.daemon.fleet.telemetry import Telemetry
from shisha_rt.daemon.journal import Journal
from shisha_rt.lifecycle.events import Settled
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import placement_problems
from shisha_rt.tuning import placer_messages as pm
from shisha_rt.tuning.device_ratios import DeviceRatios
from shisha_rt.tuning.tuner_messages import stages_of

_FRAMES: Final = 16
"""Frames of a stage, none of them looked at before, by which its segments are judged."""

_WORTH: Final = 0.98
"""A stage gains if its new placement is predicted to take at most so much of the present one's time."""

_REST_S: Final = 5.0
"""Between two changes of placement: on a busy host what devices take goes up and down with what else runs there."""

_REMEMBERED: Final = 32
"""Placed plans whose predictions are kept; far fewer are ever on their way to being live."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is predicted of a placed plan, under the ratios of `version`, and why it was placed."""

    stages: tuple[pm.StageSolved, ...]
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Asked:
    plan: Plan
    placed: Callable[[Plan], None]
    refused: Callable[[str], None]
    version: int
    reason: str


@dataclass(slots=True)
class _Live:
    epoch: int
    plan: Plan
    known: _Known


class Placing:
    """Between the daemon and its placer. Called from the daemon's loop only.

    `operator_counts` is (layers,); `devices` names those of each place. `propose` takes a plan that is placed already.
    """

    def __init__(
        self,
        *,
        solver: str,
        operator_counts: Sequence[int],
        devices: Mapping[str, Collection[str]],
        telemetry: Telemetry,
        journal: Journal,
        send: Callable[[pm.ToPlacer], None],
        propose: Callable[[Plan, Callable[[Settled], None]], None],
        searching: Callable[[], bool],
        on_solved: Callable[[], None],
    ) -> None:
        self._solver = solver
        self._operator_counts = operator_counts
        self._devices = devices
        self._telemetry = telemetry
        self._journal = journal
        self._send = send
        self._propose = propose
        self._searching = searching
        self._on_solved = on_solved
        self._ratios = DeviceRatios()
        self._version = 0  # of the ratios
        self._request = 0
        self._asked: dict[int, _Asked] = {}
        self._proposed: dict[tuple[object, ...], _Known] = {}
        self._live: _Live | None = None
        self._replacing = False
        self._rest_until_s = 0.0

    # --- placing ----------------------------------------------------------------------------------------------

    def place(self, plan: Plan, placed: Callable[[Plan], None], refused: Callable[[str], None]) -> None:
        """Have the stages of `plan` placed; one of the two is called, once."""
        self._ask(plan, placed, refused, "a plan was proposed")

    def _ask(self, plan: Plan, placed: Callable[[Plan], None], refused: Callable[[str], None], reason: str) -> None:
        for place in plan.places:
            self._ratios.assume(place, self._devices[place])
        self._request += 1
        self._asked[self._request] = _Asked(plan, placed, refused, self._version, reason)
        self._send_solve(self._request)

    def _send_solve(self, request: int) -> None:
        ratios = tuple((place, device, ratio) for (place, device), ratio in self._ratios.ratios.items())
        self._send(pm.Solve(request, stages_of(self._asked[request].plan), ratios))

    def said(self, message: pm.FromPlacer) -> None:
        asked = self._asked.pop(message.request, None)
        if asked is None:
            return
        match message:
            case pm.NotSolved(reason=reason):
                asked.refused(reason)
            case pm.Solved():
                self._solved(asked, message)

    def placer_died(self, reason: str) -> None:
        """Its successor is asked whatever has not been answered."""
        self._journal.write("placer_died", reason=reason)
        for request in self._asked:
            self._send_solve(request)

    def _solved(self, asked: _Asked, found: pm.Solved) -> None:
        stages = zip(asked.plan.stages, found.stages, strict=True)
        plan = Plan(tuple(replace(stage, placement=solved.devices) for stage, solved in stages))
        faults = placement_problems(plan, operator_counts=self._operator_counts, devices=self._devices)
        if faults:
            asked.refused(faults[0])
            return
        self._on_solved()
        self._journal.write(
            "placement_solved",
            plan=str(plan),
            reason=asked.reason,
            solver=self._solver,
            seconds=round(found.solve_s, 6),
            stages=[
                {"place": stage.place, "cost_s": solved.cost_s, "segments": _in_short(solved.devices)}
                for stage, solved in zip(plan.stages, found.stages, strict=True)
            ],
        )
        self._proposed.pop(_key(plan), None)  # placed again, it is the latest: the first are forgotten first
        self._proposed[_key(plan)] = _Known(found.stages, asked.version, asked.reason)
        if len(self._proposed) > _REMEMBERED:
            del self._proposed[next(iter(self._proposed))]
        asked.placed(plan)

    # --- what is live -----------------------------------------------------------------------------------------

    def plan_live(self, epoch: int, plan: Plan) -> None:
        known = self._proposed.get(_key(plan))
        self._live = None if known is None else _Live(epoch, plan, known)

    def look(self) -> None:
        """Every so often: compare what segments take with what was predicted, and place anew if that changes much."""
        live = self._live
        if live is None:
            return
        for i, stage in enumerate(live.plan.stages):
            taken_s = self._telemetry.window(live.epoch, i).take_segments(_FRAMES)
            if taken_s is not None:
                self._observe(live, i, stage.place, taken_s)
        rested = time.monotonic() >= self._rest_until_s
        if live.known.version != self._version and rested and not self._searching() and not self._replacing:
            self._place_anew(live)

    def _observe(self, live: _Live, index: int, place: str, taken_s: Sequence[float]) -> None:
        solved = live.known.stages[index]
        devices = [device for device, _ in groupby(solved.devices)]
        before = self._ratios.ratios
        if not self._ratios.observe(place, devices, solved.segments_s, taken_s):
            return
        self._version += 1
        changes = {
            device: self._ratios.ratios.get((place, device), 1.0) / before.get((place, device), 1.0)
            for device in set(devices)
        }
        segments_s = tuple(s * changes[device] for s, device in zip(solved.segments_s, devices, strict=True))
        corrected = pm.StageSolved(solved.devices, sum(segments_s), segments_s, None, solved.outcome)
        stages = live.known.stages
        live.known = replace(live.known, stages=(*stages[:index], corrected, *stages[index + 1 :]))
        for device, change in changes.items():
            if change != 1:
                ratio = self._ratios.ratios.get((place, device), 1.0)
                self._journal.write("device_ratio", place=place, device=device, ratio=round(ratio, 4))

    def _place_anew(self, live: _Live) -> None:
        self._replacing = True
        version = self._version
        ratios = [f"{device} on {place} x{ratio:.3g}" for (place, device), ratio in self._ratios.ratios.items()]
        reason = f"devices take other than was predicted: {', '.join(ratios) or 'as at first again'}"

        def placed(plan: Plan) -> None:
            self._replacing = False
            if self._live is live and not self._searching():
                self._replace(live, plan, version)

        def refused(reason: str) -> None:
            self._replacing = False
            self._journal.write("placement_refused", reason=reason)
            live.known = replace(live.known, version=version)

        self._ask(live.plan, placed, refused, reason)

    def _replace(self, live: _Live, plan: Plan, version: int) -> None:
        """Propose the new placement if a stage gains by it; `live` goes on under the new predictions otherwise."""
        known = self._proposed[_key(plan)]
        gains = any(
            new.devices != old.devices and new.cost_s <= _WORTH * old.cost_s
            for new, old in zip(known.stages, live.known.stages, strict=True)
        )
        if not gains:
            stages = zip(known.stages, live.known.stages, strict=True)
            kept = tuple(new if new.devices == old.devices else old for new, old in stages)
            live.known = _Known(kept, version, live.known.reason)
            return
        live.known = replace(live.known, version=version)  # not twice, should the proposal come to nothing
        self._replacing = True
        self._rest_until_s = time.monotonic() + _REST_S

        def settled(end: Settled) -> None:
            self._replacing = False

        self._propose(plan, settled)

    def describe(self, epoch: int, index: int) -> dict[str, Any] | None:
        """Of a stage of the live plan, for `status`; None while nothing is known of it."""
        live = self._live
        if live is None or live.epoch != epoch:
            return None
        solved = live.known.stages[index]
        unknown: Sequence[float | None] = [None] * len(solved.segments_s)
        taken_s = self._telemetry.window(epoch, index).segments_s or unknown
        segments = [
            {"device": device, "operators": len(list(run)), "predicted_s": predicted_s, "measured_s": measured_s}
            for (device, run), predicted_s, measured_s in zip(
                groupby(solved.devices), solved.segments_s, taken_s, strict=True
            )
        ]
        return {
            "solver": self._solver,
            "reason": live.known.reason,
            "predicted_s": solved.cost_s,
            "lower_bound_s": solved.lower_bound_s,
            "outcome": solved.outcome,
            "segments": segments,
        }

    def predicted_s(self, epoch: int, index: int) -> float | None:
        """What a stage of the live plan is predicted to take at the full speed of its place."""
        live = self._live
        return None if live is None or live.epoch != epoch else live.known.stages[index].cost_s


def _key(plan: Plan) -> tuple[object, ...]:
    """Stages do not tell themselves apart by their placements; here they have to."""
    return tuple((stage.first, stage.last, stage.places, stage.placement) for stage in plan.stages)


def _in_short(devices: Sequence[str]) -> str:
    """For instance `ort_serial 12, openvino 3, ort_serial 40`: operators on each device, segment by segment."""
    return ", ".join(f"{device} {len(list(run))}" for device, run in groupby(devices))
