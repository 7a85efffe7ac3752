"""What planning has promised, kept by whoever watches from outside: from what it was told and what it said alone.

- Each proposal, whoever made it, is settled once.
- Each plan that the tuner wants tried in its present search is judged once, on frames of that very plan, and told.
- What is kept is live at that moment, and the best beyond noise of what that search has measured.
- A client's plan stays until a client asks otherwise, or a place of it is lost.
- A search that is paused leaves the best plan that it has measured.
- What the daemon chooses by itself is the best that is known of the machine as it is now.
- The objective follows the load while nothing is searched and no client has set a plan, and its best plan is live then.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from shisha_rt.checked import one_of
from shisha_rt.core import event_log
from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan, key_of
from shisha_rt.core.tuning.cores import CoreEvent, Outward
from shisha_rt.core.tuning.instructions import CountTrial, Keep, TellPlacer, TellTuner, Write
from shisha_rt.core.tuning.state import ATTEMPTS, Profiles
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, Objective
from shisha_rt.planner.seed import seed
from tests.core.lifecycle.random_plans import LAYERS

Name = tuple[le.Owner, int]


class Books:
    """`live`: the epoch that new frames take, and its plan. `run`: the search that goes on; None: none does."""

    def __init__(self, machine: Machine, kept: Mapping[str, BestPlan], by_costs: Plan | None, warm_up: int) -> None:
        self.filed = self.machine = machine
        self.kept = dict(kept)
        self.over: list[str] = []  # the places of the last search
        self.by_costs = by_costs
        self.profiles = Profiles.KNOWN
        self.warm_up = warm_up
        self.objective: Objective = "throughput"
        self.searched_for: Objective = "throughput"
        self.proposed: dict[Name, le.PlanProposed] = {}
        self.plans: dict[int, Plan] = {}
        self.live: tuple[int, Plan] | None = None
        self._available: tuple[str, ...] = ()
        self.run: int | None = None
        self.settling = False
        self.trying: tm.Try | None = None
        self.best: tuple[Plan, Measurement] | None = None
        self.clients: Plan | None = None
        self.left_by_pause: Plan | None = None
        self.seen: Counter[str] = Counter()
        self._dropped_since_pause = 0
        self._to_be_asked: deque[Name] = deque()
        self.set_by_client: Plan | None = None
        self._asked: dict[int, Name | None] = {}  # None: the live plan, placed anew
        self._at_once: set[Name] = set()
        self._makeshifts: set[tuple[object, ...]] = set()
        self._makeshift = False  # the live plan was placed at once, or begins a search as it was placed then
        self._parts_s: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        self._event: CoreEvent = le.Tick()
        self._drifted: event_log.Drifted | None = None
        self._heeded = True
        self._not_placed: Name | None = None
        self._searching_before = False
        self._available_before: list[str] = []
        self._note: dict[type, Callable[[Any], None]] = {
            le.PlanProposed: self._proposed,
            le.Lead: self._led,
            do.EpochStarted: self._epoch_started,
            do.PlaceOperators: lambda outward: self._to_be_asked.append(
                (outward.proposed.owner, outward.proposed.number)
            ),
            do.Settled: self._settled,
            TellTuner: lambda outward: self._told(outward.message),
            TellPlacer: lambda outward: self._asked_placer(outward.message),
            Write: lambda outward: self._written(outward.record),
            CountTrial: self._counted,
            Keep: self._kept,
        }

    # --- what it is told --------------------------------------------------------------------------------------

    def hear(self, event: CoreEvent) -> None:
        """An event is about to be handled."""
        self._event, self._heeded, self._not_placed = event, True, None
        self._available_before = list(self._available)
        self._searching_before = self.run is not None or self.settling
        match event:
            case le.PlanProposed():
                self.proposed[event.owner, event.number] = event
            case ev.PartTaken():
                self._parts_s[event.epoch, event.stage].append(event.service_s)
            case ev.PlacerSaid(message=answer):
                asked = self._asked.pop(answer.request, None)
                self._not_placed = asked if isinstance(answer, pm.NotSolved) else None
            case ev.MachineChanged():
                self.machine = event.machine
            case ev.ProfilerSaid(message=message) if self.profiles is Profiles.COMING:
                self._profiled(message)
            case ev.ProfilerSaid(message=fm.ModelProfiled() as message) if self.profiles is Profiles.KNOWN:
                self.by_costs = message.by_costs[0][1]  # links to other hosts have changed
                self.seen["told again"] += 1
            case ev.SearchAsked():
                self.clients = self.set_by_client = None
            case ev.TunerSaid(message=message):
                self._tuner_says(message)
            case ev.PauseAsked() if self._searching_before and self.best is not None and self.best[1].can_run:
                self.left_by_pause, self._dropped_since_pause = self.best[0], 0

    def _profiled(self, message: fm.FromProfiler) -> None:
        if isinstance(message, fm.ModelProfiled):
            self.profiles, self.by_costs = Profiles.KNOWN, message.by_costs[0][1]
            self.seen["profiled"] += 1
        else:
            self.profiles = Profiles.FAILED
            self.seen["not profiled"] += 1

    def _tuner_says(self, message: tm.FromTuner) -> None:
        self._heeded = message.run == self.run and self.trying is None
        if not self._heeded:
            self.seen["unheeded"] += 1
        elif isinstance(message, tm.Try):
            self.trying = message
            self._parts_s.clear()
        else:
            self.run, self.settling = None, True

    def note(self, said: list[Outward], *, available: tuple[str, ...], searching: bool) -> None:
        """All that followed from it, in order; the places that a plan may use now, and whether a search goes on."""
        if not self._heeded:
            assert not said, f"{self._event} is of a search that is over, or nobody asked, yet {said}"
        self._available = available
        for outward in said:
            note = self._note.get(type(outward))
            if note is not None:
                note(outward)
        self.settling &= searching
        if self._not_placed is not None:
            assert self._not_placed not in self.proposed, f"{self._not_placed} cannot be placed, and it is not settled"
        if self.clients is not None and not set(self.clients.places) <= set(available):
            self.clients = None
        if self.left_by_pause is not None and not set(self.left_by_pause.places) <= set(available):
            self.left_by_pause = None

    # --- proposals --------------------------------------------------------------------------------------------

    def _proposed(self, proposed: le.PlanProposed) -> None:
        name = proposed.owner, proposed.number
        assert name not in self.proposed, f"{name} is proposed twice"
        self.proposed[name] = proposed
        self.seen[f"proposed by {proposed.owner}"] += 1
        if proposed.owner is le.Owner.PLACER:
            assert self._makeshift or not self._searching_before, f"{proposed} disturbs a search"

    def _led(self, lead: le.Lead) -> None:
        """The load asks for the plan of this epoch, which is loaded, or it was loaded ahead."""
        assert self.clients is None, f"{lead} while a client's plan is to stay: {self.clients}"
        self.live = lead.epoch, self.plans[lead.epoch]
        self.seen["led"] += 1

    def _epoch_started(self, started: do.EpochStarted) -> None:
        self.plans[started.epoch] = started.plan

    def _settled(self, end: do.Settled) -> None:
        name = owner, _ = end.proposed.owner, end.proposed.number
        assert name in self.proposed, f"{end}: it was settled before, or never proposed"
        del self.proposed[name]
        self.seen[f"plan {end.ending}"] += 1
        self.seen[f"{owner} {end.ending}"] += 1
        if owner is le.Owner.TUNER and end.ending is not do.Ending.LIVE:
            self._dropped_since_pause += 1
            if end.ending is do.Ending.REFUSED or self._dropped_since_pause >= ATTEMPTS:
                self.left_by_pause = None  # it cannot go live
        if end.ending is not do.Ending.LIVE:
            return
        assert end.epoch is not None
        self.live = end.epoch, end.plan
        if owner is le.Owner.DAEMON:  # for other places than were searched, and on its way before the pause
            self.left_by_pause = None
        as_placed = tuple((stage, stage.placement) for stage in end.plan.stages)
        if name in self._at_once:
            self._makeshifts.add(as_placed)
        self._makeshift = as_placed in self._makeshifts
        if owner is le.Owner.CLIENT:
            self.clients = self.set_by_client = end.plan
            self.left_by_pause = None
        elif end.plan == self.set_by_client:
            self.clients = end.plan
            self.seen["restored"] += 1
        elif self.clients is not None:
            assert end.plan == self.clients, f"{end} undoes what a client set: {self.clients}"

    # --- searches ---------------------------------------------------------------------------------------------

    def _told(self, message: tm.ToTuner) -> None:
        match message:
            case tm.Begin():
                self.over = [place.name for place in message.places]
                assert message.strategy != "guided" or self.profiles is Profiles.KNOWN, f"{message} without costs"
                assert self.clients is None, f"{message} while a client's plan is to stay: {self.clients}"
                self.run, self.settling, self.trying, self.best = message.run, False, None, None
                self.searched_for = message.objective
                assert self.searched_for == self.objective, f"{message}, and the load asks for {self.objective}"
                self.left_by_pause = None
                self.seen["search"] += 1
            case tm.Break():
                self.run, self.settling, self.trying = None, False, None
                self.seen["pause"] += 1
            case tm.Measured():
                self._judged(message)

    def _judged(self, measured: tm.Measured) -> None:
        assert self.trying is not None, f"{measured}: nothing is being tried"
        assert measured.run == self.run, f"{measured}: the search is {self.run}"
        plan, measurement = self.trying.plan, measured.measurement
        self.trying = None
        self.seen["trial" if measurement.can_run else "trial of what cannot run"] += 1
        if measurement.can_run:
            self._check_frames(plan, measurement)
        self._drifted = None
        if self.best is None or measurement.is_better_than(self.best[1], self.searched_for):
            self.best = plan, measurement

    def _check_frames(self, plan: Plan, measurement: Measurement) -> None:
        """A measurement is of this plan's frames, and of nothing else: upon the last, or that by which it drifted."""
        live, drifted = self.live, self._drifted
        assert live is not None
        assert live[1] == plan, f"{plan} is judged while {live[1]} is live"
        if not isinstance(self._event, ev.PartTaken):
            assert drifted is not None, f"{measurement} is found upon {self._event}"
            assert measurement.service_s[drifted.stage] == drifted.service_s, (
                f"{measurement} is not what {drifted} was seen by"
            )
            return
        for stage, service_s in enumerate(measurement.service_s):
            taken_s = self._parts_s[live[0], stage]
            enough = len(taken_s) >= measurement.frames + self.warm_up
            assert enough, f"{measurement.frames} frames of stage {stage} are measured, {len(taken_s)} have passed"
            assert min(taken_s) <= service_s <= max(taken_s), f"stage {stage} took {taken_s}, not {service_s}"

    def _counted(self, trial: CountTrial) -> None:
        assert self.trying is not None, f"{trial} is counted, nothing is being tried"
        self.seen["counted"] += 1

    def key(self, over: Collection[str]) -> str:
        """Of the machine as it is now, without its other places, for the objective that serves."""
        places = tuple(place for place in self.machine.places if place.name in over)
        return key_of(replace(self.machine, places=places), f"{self.objective}, plain chains")

    def _kept(self, keep: Keep) -> None:
        assert self.live is not None
        assert keep.best.plan == self.live[1], f"{keep.best.plan} is kept, {self.live[1]} is live"
        assert (keep.best.plan, keep.best.measurement) == self.best, f"{keep} is not the best measured: {self.best}"
        assert self.settling, f"{keep} while no search has ended"
        assert keep.key == self.key(self.over), f"{keep} is of another machine"
        self.settling = False
        self.kept[keep.key] = keep.best
        self.seen["kept"] += 1

    def _asked_placer(self, message: pm.ToPlacer) -> None:
        assert isinstance(message, pm.Solve)
        if isinstance(self._event, ev.Look):
            self.seen["placed anew"] += 1
            assert self._makeshift or not self._searching_before, f"{message} while the tuner searches"
            self._asked[message.request] = None
        elif message.request not in self._asked:  # else its successor is asked again
            self._asked[message.request] = name = self._to_be_asked.popleft()
            serves = self.live is None or set(self.live[1].places) <= set(self._available)
            assert serves or name[0] is not le.Owner.DAEMON, f"frames wait for {message}"

    # --- the journal ------------------------------------------------------------------------------------------

    def _written(self, record: event_log.Record) -> None:
        match record:
            case event_log.TrialJudged():
                assert self.trying is not None, f"{record}: nothing is being tried"
                tried = self.trying.plan
                assert record.plan == str(tried), f"{record} is written, {tried} was tried"
            case event_log.Replanned():
                self.left_by_pause = None
                expected = self._own_choice()
                assert record.plan == str(expected), f"{record}, expected {expected}"
                self.seen["replan"] += 1
            case event_log.PlacedAtOnce():
                self._at_once.add(self._to_be_asked.popleft())
                self.seen["placed at once"] += 1
            case event_log.ObjectiveChanged():
                self._objective_changed(record)
            case event_log.Drifted():
                self.seen["drift"] += 1
                self._drifted = record
            case event_log.TuningResumed():
                self.seen["resumed"] += 1
                kept = self.kept.get(self.key(self._available))
                if kept is not None:
                    self.best, self.over = (kept.plan, kept.measurement), list(self._available)

    def _objective_changed(self, record: event_log.ObjectiveChanged) -> None:
        assert self.run is None, f"{record} while run {self.run} searches"
        assert not self.settling, f"{record} while the best plan of a search goes live"
        assert self.clients is None, f"{record} while a client's plan is to stay: {self.clients}"
        assert self.live is not None
        assert record.objective != self.objective, f"{record}: it was that before"
        self.objective = one_of("objective", record.objective, EVERY_OBJECTIVE)
        over = self._available_before  # a place may be lost in this moment
        kept = self.kept.get(self.key(over))
        self.seen["objective changed" if record.plan else "objective searched for"] += 1
        if record.plan is None:
            assert kept is None, f"{record}, and {kept} is known"
        else:
            assert kept is not None, f"{record}, and nothing is kept"
            assert record.plan == str(kept.plan) == str(self.live[1]), f"{record}: {kept} is kept, {self.live} is live"
            self.best, self.over = (kept.plan, kept.measurement), over

    def _own_choice(self) -> Plan:
        if self.set_by_client is not None and set(self.set_by_client.places) <= set(self._available):
            return self.set_by_client
        whole = [place.name for place in self.machine.places]
        for best in (self.kept.get(self.key(self._available)), self.kept.get(self.key(whole))):
            if best is not None and set(best.plan.places) <= set(self._available):
                return best.plan
        if (
            self.by_costs is not None
            and self.objective == "throughput"
            and self.machine == self.filed
            and set(self.by_costs.places) <= set(self._available)
        ):
            return self.by_costs
        return seed((1.0,) * LAYERS, [place for place in self.machine.places if place.name in self._available])
