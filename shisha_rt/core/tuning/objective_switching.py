"""Objective switching: which of the best plans, one for each objective, is to serve under the present load.

With a target, the load does not decide: the plan for throughput serves, unless its unloaded latency misses the target
and that of the plan for latency does not. If only one of the two plans is known, it stands in for the other, so that
the load can still ask for the other objective: then its plan is searched for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.core import event_log
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.core.tuning.load import CALMER, Load, PlanTimes, busy_from
from shisha_rt.core.tuning.state import Serving
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, Objective

_REST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wish:
    """The objective to serve, and why. `best`: its plan; None: to be found. `utilisation`: of the plan for latency."""

    objective: Objective
    best: BestPlan | None
    reason: str
    utilisation: float


class ObjectiveSwitching:
    """Does nothing unless the objective of `choice` is `auto`."""

    def __init__(self, serving: Serving, choice: Choice) -> None:
        self._serving = serving
        self._choice = choice
        self._load = Load()
        self._arrived = self._came = 0
        self._rests_until_s = -math.inf
        self._seen: tuple[Plan, Measurement] | None = None
        self._pace = 1.0

    @property
    def utilisation(self) -> float | None:
        """Utilisation of the plan for latency by the recent load; None: no such plan, or a user set the objective."""
        return None if math.isnan(self._load.utilisation) else self._load.utilisation

    @property
    def frames_came(self) -> bool:
        return self._came > 0

    def look(self, counted: FramesCounted, now_s: float, tried_for: Objective | None) -> Wish | None:
        """Return the objective to change to, None for no change. `tried_for`: plans are tried for this objective, under
        what was its load; then the other one is returned as soon as the load asks for it and its plan is known.
        """
        choice, serves = self._choice, tried_for or self._choice.objective
        self._came, self._arrived = counted.arrived - self._arrived, counted.arrived
        best = self._best() if choice.auto else {}
        known = [plan for plan in best.values() if plan is not None]
        if not known:
            self._load = Load()
            return None
        quick, most = best["latency"] or known[0], best["throughput"] or known[0]
        latency, throughput = self._times(quick), self._times(most)
        if tried_for == "latency" and best["latency"] is None:  # what is tried computes one frame after the other
            latency = replace(latency, frame_s=latency.alone_s)
        wanted, came = self._load.look(counted, now_s, serves, latency, throughput), self._load.came
        if now_s < self._rests_until_s:
            self.restart()
            return None
        reason = ""
        if tried_for is not None:
            wanted = wanted if came and best[wanted] is not None else serves
        elif choice.target_s < math.inf:
            wanted = "latency" if latency.alone_s <= choice.target_s < throughput.alone_s else "throughput"
        if tried_for is None and len(known) == len(OBJECTIVES):
            dominant = _better_at_both(quick, most)
            wanted = serves if quick.plan == most.plan else dominant or wanted
            if dominant is not None:
                reason = f"the plan for {dominant} is the better one for the other objective, too: switching to it"
        if wanted == serves or (len(known) < len(OBJECTIVES) and not came):  # a search measures frames
            return None
        used = (min if wanted == "latency" else max)(self._load.utilisation, self._load.lately)
        if choice.target_s < math.inf:
            reason = reason or _reason_of_target(wanted, choice.target_s)
        reason = reason or _reason(wanted, used, busy_from(latency, throughput))
        return Wish(wanted, best[wanted], reason, round(used, 3))

    def restart(self) -> None:
        """Restart the detection of changes, as the plan may not be changed now."""
        self._load.forget()

    def follow(self, wish: Wish) -> event_log.ObjectiveChanged:
        self._choice.objective = wish.objective
        plan = None if wish.best is None else str(wish.best.plan)
        return event_log.ObjectiveChanged(
            objective=wish.objective, reason=wish.reason, plan=plan, utilisation=wish.utilisation
        )

    def watched(self, plan: Plan, measurement: Measurement) -> None:
        """Note present times of the live plan; it may have been chosen long ago, when the host was busier or calmer.

        Times of the other plan are assumed to have changed by the same ratio (`_pace`).
        """
        self._seen = plan, measurement
        known = self._choice.best(self._serving.available, self._choice.objective)
        if known is not None and known.plan == plan and measurement.can_run and known.measurement.bottleneck_s > 0:
            self._pace = measurement.bottleneck_s / known.measurement.bottleneck_s

    def corrected(self) -> None:
        """Note that the known times of all plans are up to date."""
        self._pace = 1.0

    def rest(self, now_s: float) -> None:
        """Change nothing for a while: the wished plan cannot go live, or a search has found none that can run."""
        self._rests_until_s = now_s + _REST_S

    def _best(self) -> dict[Objective, BestPlan | None]:
        available = self._serving.available
        return {objective: self._choice.best(available, objective) for objective in OBJECTIVES}

    def is_best(self, plan: Plan) -> bool:
        """Whether `plan` is the best one known for an objective, so that the load can ask for it."""
        return self._choice.auto and any(best is not None and best.plan == plan for best in self._best().values())

    def other(self, live: Plan) -> Plan | None:
        """The plan that the load can ask for while `live` serves; None if there is none."""
        if not self.is_best(live):
            return None
        plans = [best.plan for best in self._best().values() if best is not None]
        return next((plan for plan in plans if plan != live), None)

    def plans(self) -> dict[str, dict[str, object] | None]:
        return {objective: None if best is None else _told(best) for objective, best in self._best().items()}

    def _times(self, best: BestPlan) -> PlanTimes:
        scale = self._choice.machine.time_scale
        if self._seen is not None and self._seen[0] == best.plan:
            measured = self._seen[1]
        else:
            measured, scale = best.measurement, scale * self._pace
        return PlanTimes(scale * measured.bottleneck_s, scale * measured.latency_s)


def _reason(wanted: Objective, used: float, busy: float) -> str:
    load = f"load {used:.0%}"
    if wanted == "throughput":
        return f"{load} (from {busy:.0%}) and frames wait: switching to the plan for throughput"
    few = f"{load} (< {busy - CALMER:.0%})" if used < busy - CALMER else f"{load}, but hardly any frames meet"
    return f"{few}: switching to the low-latency plan"


def _reason_of_target(wanted: Objective, target_s: float) -> str:
    target = f"the target is {1e3 * target_s:g} ms"
    if wanted == "throughput":
        return f"{target}: switching to the plan for throughput, by which most frames are within it"
    return f"{target}, which the plan for throughput misses: switching to the low-latency plan"


def _better_at_both(quick: BestPlan, most: BestPlan) -> Objective | None:
    """Return the objective whose plan is better at the other objective, too, beyond noise; None if there is none, or
    one of the plans was measured while others used the cores: then their times tell of other things, too.
    """
    if max(quick.others_ratio, most.others_ratio) > DISTURBED:
        return None
    if most.measurement.is_better_than(quick.measurement, "latency"):
        return "throughput"
    return "latency" if quick.measurement.is_better_than(most.measurement, "throughput") else None


def _told(best: BestPlan) -> dict[str, object]:
    measured = best.measurement
    return {
        "plan": str(best.plan),
        "throughput_fps": measured.throughput_fps,
        "latency_s": measured.latency_s,
    }
