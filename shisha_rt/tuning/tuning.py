"""Online tuning as the daemon sees it: trials made live, measured from frames that clients sent, and judged.

The search itself runs in a process of its own and proposes (R4); this makes each proposal an epoch like any other,
measures it in a window of its frames, and answers. No frames: it waits. When the search has ended the best plan
measured is made live (R5), kept on disk, and watched: when a stage's time leaves its band for several windows the
machine is no longer what was measured, and the search begins again from the live plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, Final

from shisha_rt.daemon.journal import Journal
from shisha_rt.lifecycle.events import Settled
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.ready.best_plans import BestPlan, BestPlans
from shisha_rt.tuning import tuner_messages as tm
from shisha_rt.tuning.drift import WINDOWS_TO_LEAVE, leaving_stage
from shisha_rt.tuning.repeatability import Repeatability
from shisha_rt.tuning.search_run import Options, Run, SearchedPlace
from shisha_rt.tuning.window import Window

ATTEMPTS: Final = 3
"""To make a plan live, before it counts as one that cannot run."""

_QUIET_S: Final = 2.0


class State(Enum):
    """What the tuner is doing. `shisha_tuner_state` has these names, and `WAITING`."""

    OFF = "off"
    PAUSED = "paused"
    TUNING = "tuning"
    SETTLING = "settling"
    WATCHING = "watching"


WAITING: Final = "waiting"


class Tuning:
    """Drives the tuner's process and watches what is live. Called from the daemon's loop only."""

    def __init__(
        self,
        *,
        places: Sequence[SearchedPlace],
        available: Callable[[], Collection[str]],
        legal_cuts: Sequence[int],
        knows_costs: bool,
        options: Options,
        warm_up: int,
        best_plans: BestPlans,
        journal: Journal,
        send: Callable[[tm.ToTuner], None],
        propose: Callable[[Plan, Callable[[Settled], None]], None],
        on_trial: Callable[[str], None],
    ) -> None:
        self.state = State.OFF
        self.options = options
        self.knows_costs = knows_costs
        self.run = Run(0)
        self.trials = 0
        self.moves = 0
        self.live: tuple[int, Plan] | None = None
        self.measured: Measurement | None = None
        self.repeatability = Repeatability()
        self.places = places  # as they are now: a change of speed may change a rank
        self._stored_speed = {place.name: place.speed for place in places}
        self._available = available
        self._legal_cuts = tuple(legal_cuts)
        self._warm_up = warm_up
        self.best_plans = best_plans
        self._journal = journal
        self._send = send
        self._propose = propose
        self._on_trial = on_trial
        self._order: tuple[str, ...] = ()
        self._window: Window | None = None
        self._last_frame_s = time.monotonic()
        self._windows_outside = 0

    # --- what the daemon tells it -----------------------------------------------------------------------------

    def plan_live(self, epoch: int, plan: Plan) -> None:
        """Any plan, whoever proposed it, has gone live.

        It may have waited for its turn while a search began: what is being measured is then no longer what runs.
        """
        measuring = self._window is not None
        self.live = (epoch, plan)
        self._window = None
        if self.state is State.TUNING and measuring:
            self.begin("another plan has gone live")
        elif self.state is State.WATCHING:  # the same stages, and other devices in them
            self.watch()

    def begin(self, why: str, start: Plan | None = None) -> None:
        """Search from `start` (None: from the live plan); whatever search was going on is over."""
        if self.live is None:
            return
        plan = start or self.live[1]
        self._order = self._walk_order(plan)
        self.run = Run(self.run.number + 1, self.live[0])
        self.state = State.TUNING
        self._window = None
        self._journal.write(
            "tuning_began",
            run=self.run.number,
            reason=why,
            plan=str(plan),
            strategy=self.options.strategy,
            alpha=self.options.alpha,
        )
        available = self._available()
        self._send(
            tm.Begin(
                run=self.run.number,
                strategy=self.options.strategy,
                start=tm.stages_of(plan),
                places=tuple(
                    tm.PlaceNow(place.name, place.rank, self._stored_speed[place.name] / place.speed)
                    for place in self.places
                    if place.name in available
                ),
                order=self._order,
                legal_cuts=self._legal_cuts,
                alpha=self.options.alpha,
                balance=self.options.balance,
            )
        )

    def _walk_order(self, plan: Plan) -> tuple[str, ...]:
        """The places of the walk's positions: as before, so that one that was emptied may be given layers again."""
        available = self._available()
        kept = tuple(name for name in self._order if name in available)
        return kept if tuple(name for name in kept if name in plan.places) == plan.places else plan.places

    def watch(self, baseline: Measurement | None = None) -> None:
        """The live plan is to stay; `baseline` is what its stages took when it was chosen (None: measure it now)."""
        self.state = State.WATCHING
        self.measured = baseline
        self._windows_outside = 0
        self._measure()

    def pause(self, why: str, *, keep_best: bool) -> None:
        """Stop searching and watching. With `keep_best`, the best plan of the search goes live (R5)."""
        if self.state in (State.OFF, State.PAUSED):
            return
        best = self.run.best
        searching = self.searching
        self.state = State.PAUSED
        self._window = None
        self._journal.write("tuning_paused", run=self.run.number, reason=why)
        self._send(tm.Break(self.run.number))
        if searching and keep_best and best is not None and self.live is not None and best[0] != self.live[1]:
            self._propose(best[0], lambda settled: None)

    def resume_watching(self, best: BestPlan) -> None:
        """The live plan is the one that an earlier search ended with."""
        self._journal.write("tuning_resumed", plan=str(best.plan), reason="the best plan of an earlier run")
        self._order = best.order
        self.watch(best.measurement)

    def machine_changed(self, why: str) -> None:
        """What was measured holds no longer."""
        self.repeatability.machine_changed()
        if self.state in (State.TUNING, State.SETTLING, State.WATCHING):
            self.begin(why)

    def tuner_died(self, why: str) -> None:
        """A search that has lost its process begins again, from the best plan that it had found (R5)."""
        if self.state is State.TUNING:
            best = self.run.best
            self.begin(why, best[0] if best is not None and best[1].can_run else None)

    def frame_done(self, epoch: int, stage: int, service_s: float) -> None:
        """A part of a frame has been computed: it may complete the window that is being measured."""
        self._last_frame_s = time.monotonic()
        if self._window is None or self.live is None or epoch != self.live[0]:
            return
        found = self._window.add(stage, service_s, self._last_frame_s)
        if found is None:
            return
        if self.state is State.TUNING:
            self._window = None
            self._trial_done(found)
        else:
            self._look(found)

    @property
    def searching(self) -> bool:
        return self.state in (State.TUNING, State.SETTLING)

    @property
    def waits_for_frames(self) -> bool:
        return self._window is not None and time.monotonic() - self._last_frame_s > _QUIET_S

    @property
    def gap_ratio(self) -> float:
        """The best plan's slowest stage over the bound that no plan can be below; nan where one is not known."""
        best, bound_s = self.run.best, self.run.lower_bound_s
        return best[1].bottleneck_s / bound_s if best is not None and bound_s else math.nan

    @property
    def doing(self) -> str:
        """Its state in a word, for people: `waiting` while it needs frames and none come."""
        return WAITING if self.waits_for_frames else self.state.value

    # --- what the search says ---------------------------------------------------------------------------------

    def said(self, message: tm.FromTuner) -> None:
        if message.run != self.run.number or self.state is not State.TUNING:
            return  # of a run that is over
        match message:
            case tm.Try():
                self.run.lower_bound_s = message.lower_bound_s
                self._try(message)
            case tm.Finished():
                self.run.lower_bound_s = message.lower_bound_s
                self._settle(Plan.of(message.stages), message.reason)

    def _try(self, wanted: tm.Try) -> None:
        assert self.live is not None
        self.run.trying = wanted
        plan = Plan.of(wanted.stages)
        if plan == self.live[1]:
            self._measure()
        else:
            self._make_live(plan, attempts=ATTEMPTS)

    def _make_live(self, plan: Plan, attempts: int) -> None:
        """A plan that was dropped once, as a worker died meanwhile, may well go live at the next attempt."""
        run = self.run.number

        def settled(end: Settled) -> None:
            if run != self.run.number or self.state is not State.TUNING:
                return
            if end.outcome == "live":
                self._measure()
            elif end.outcome == "dropped" and attempts > 1:
                self._make_live(plan, attempts - 1)
            else:
                never = Measurement((math.inf,) * len(plan.stages), 0.0, 0, 0.0)
                self._trial_done(never, f"{end.outcome}: {end.reason}")

        self._propose(plan, settled)

    def _measure(self) -> None:
        assert self.live is not None
        self._window = Window(len(self.live[1].stages), self._warm_up)

    def _trial_done(self, found: Measurement, trouble: str = "") -> None:
        trying = self.run.trying
        assert trying is not None
        plan = Plan.of(trying.stages)
        self.repeatability.observe(plan, found)
        found = self.repeatability.widen(found)
        best = self.run.best
        if not found.can_run:
            verdict = "cannot_run"
        elif best is None:
            verdict = "first"
        else:
            verdict = "better" if found.is_better_than(best[1]) else "not_better"
        if best is None or verdict == "better":
            self.run.best = (plan, found)
        self._journal.write(
            "trial",
            run=self.run.number,
            trial=self.run.trials,
            epoch=self.live[0] if self.live else None,
            plan=str(plan),
            stages=[{"first": stage.first, "last": stage.last, "places": stage.places} for stage in plan.stages],
            reason=trying.reason,
            verdict=verdict,
            trouble=trouble or None,
            **_as_fields(found),
        )
        self.moves += self.run.trials > 0 and self.options.strategy == "shisha"
        self.run.trials += 1
        self.trials += 1
        self._on_trial(verdict)
        self._send(tm.Measured(self.run.number, found.service_s, found.band, found.frames, found.took_s))

    def _settle(self, plan: Plan, reason: str) -> None:
        """The search has ended: its best plan is to be live."""
        assert self.live is not None
        best = self.run.best
        self._journal.write(
            "tuning_ended",
            run=self.run.number,
            plan=str(plan),
            reason=reason,
            trials=self.run.trials,
            seconds=round(time.monotonic() - self.run.began_s, 3),
            throughput_fps=best[1].throughput_fps if best else None,
        )
        if best is not None and best[1].can_run:
            self.best_plans.save(BestPlan(*best, self._order))
        known = best[1] if best is not None and best[0] == plan and best[1].can_run else None
        if plan == self.live[1]:
            self.watch(known)
            return
        self.state = State.SETTLING
        run = self.run.number

        def settled(end: Settled) -> None:
            if run != self.run.number or self.state is not State.SETTLING:
                return
            if end.outcome == "live":
                self.watch(known)
            else:
                self.begin(f"the best plan could not go live: {end.reason}")

        self._propose(plan, settled)

    # --- watching ---------------------------------------------------------------------------------------------

    def _look(self, found: Measurement) -> None:
        """Compare a window of the live plan with what it is known to take."""
        assert self.live is not None
        self._window = Window(len(self.live[1].stages), warm_up=0)
        found = self.repeatability.widen(found)
        baseline = self.measured
        if baseline is None or len(baseline.service_s) != len(found.service_s):
            self.measured = found
            return
        stage = leaving_stage(baseline, found)
        self._windows_outside = self._windows_outside + 1 if stage is not None else 0
        if stage is not None and self._windows_outside >= WINDOWS_TO_LEAVE:
            self.repeatability.machine_changed()
            before_s, now_s = baseline.service_s[stage], found.service_s[stage]
            place = self.live[1].stages[stage].place
            self._journal.write("drift", stage=stage, place=place, before_s=before_s, service_s=now_s)
            self.begin(f"stage {stage} ({place}) takes {now_s * 1e3:.3g} ms, not {before_s * 1e3:.3g} ms")

    def describe(self) -> dict[str, Any]:
        """For `tuner_get` and `status`."""
        best = self.run.best
        return {
            "state": self.doing,
            "strategy": "seed" if self.state is State.OFF else self.options.strategy,
            "alpha": self.options.alpha,
            "balance": self.options.balance,
            "run": self.run.number,
            "trials": self.run.trials,
            "trials_total": self.trials,
            "moves_total": self.moves,
            "trying": self.run.trying.reason if self.run.trying and self.state is State.TUNING else None,
            "best_throughput_fps": best[1].throughput_fps if best else None,
            "best_plan": str(best[0]) if best else None,
            "lower_bound_s": self.run.lower_bound_s,
        }


def _as_fields(m: Measurement) -> dict[str, object]:
    """For a journal that strangers read as JSON, which has no infinity."""
    if not m.can_run:
        return {"service_s": None, "throughput_fps": None, "band": None, "frames": 0, "measured_in_s": 0.0}
    return {
        "service_s": m.service_s,
        "throughput_fps": m.throughput_fps,
        "band": m.band,
        "frames": m.frames,
        "measured_in_s": m.took_s,
    }
