"""A world in virtual time around one `Cores`: workers, a tuner, a placer, clients, and an adversary.

What the cores say changes the simulated world at once; what the world answers travels as messages. Workers' messages
arrive in any order, the tuner's and the placer's in theirs, and old ones perhaps again. Frames are served by workers
that really have the segments, so a plan is measured on what its stages take here: `layer_s` and noise, or what its
operators take on their devices.

`Books` compares what is said with what was promised, and `check_cores` runs after every event, unless asked not to. A
broken promise raises `BrokenPromise` with the seed and the last events: `run(seed)` repeats exactly that interleaving.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.tables import UnknownTransition
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import measuring, searches
from shisha_rt.core.tuning import placing as placing_module
from shisha_rt.core.tuning.best import BestPlan, BestPlans, key_of
from shisha_rt.core.tuning.choice import Basis, Choice
from shisha_rt.core.tuning.cores import CoreEvent, Cores, Outward
from shisha_rt.core.tuning.greedy_placement import GreedyPlacement
from shisha_rt.core.tuning.instructions import TellPlacer, TellTuner
from shisha_rt.core.tuning.measuring import Window
from shisha_rt.core.tuning.placing import Placing
from shisha_rt.core.tuning.profiler_messages import ModelProfiled, NotProfiled
from shisha_rt.core.tuning.run import SearchOptions, SearchRun
from shisha_rt.core.tuning.state import WAITING, Profiles, State
from shisha_rt.core.tuning.telling import description
from shisha_rt.core.tuning.tuner_messages import StoredCosts
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.plan.measure import MIN_FRAMES
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.core.lifecycle.random_plans import LAYERS, plain_plan
from tests.core.lifecycle.simulated_workers import Workers
from tests.core.lifecycle.simulated_world import BrokenPromise, random_policy
from tests.core.tuning.invariants import check_cores
from tests.core.tuning.planning_books import Books
from tests.core.tuning.simulated_children import COSTS, DEVICES, OPERATORS_PER_LAYER, Placer, Tuner, operators_of

_TRACE_KEPT: Final = 60
_MOST_STEPS_TO_REST: Final = 300
_FRAME_S: Final = 0.01
_NOISE: Final = 0.002


class World:
    """One random interleaving: `run` lets the adversary act, then heals everything and looks at what is left."""

    def __init__(self, seed: int, broken: type | None = None, *, validate: bool = True) -> None:
        self.seed = seed
        self.validate = validate
        self.rng = rng = random.Random(seed)
        self.names = [f"p{i}" for i in range(rng.randint(1, 4))]
        self.machine = Machine("m", "m", (Memory("ram"),), tuple(self._place(name) for name in self.names))
        self.layer_s = {name: rng.choice((1e-3, 2e-3, 3e-3)) for name in self.names}
        self.devices = dict.fromkeys(self.names, DEVICES) if rng.random() < 0.4 else {}
        rules = PlanRules(LAYERS, tuple(self.names), None, (OPERATORS_PER_LAYER,) * LAYERS, self.devices)
        slot_count = rng.randint(2, 5)
        self.lifecycle = Lifecycle(rules, slot_count, random_policy(rng))
        kept = {key_of(self.machine): self._kept_before()} if rng.random() < 0.3 else {}
        self.auto = random.Random(f"auto {seed}").random() < 0.4
        if self.auto and rng.random() < 0.7:
            for objective, frame_s, alone_s in (("throughput", 1e-3, 5e-3), ("latency", 2e-3, 3e-3)):
                best = self._kept_before()
                measurement = replace(best.measurement, service_s=(frame_s,) * len(best.plan.stages), alone_s=alone_s)
                kept[key_of(self.machine, f"{objective}, plain chains")] = replace(best, measurement=measurement)
        self.shares = random.Random(f"crowd {seed}").random() < 0.25
        self.unprofiled = random.Random(f"profiles {seed}").random() < 0.25  # of its own: the others stay as they were
        by_costs = plain_plan(rng, self.names) if rng.random() < 0.3 and not self.unprofiled else None
        choice = Choice(
            self.machine,
            rules,
            (1.0,) * LAYERS,
            BestPlans(kept),
            Basis(
                "auto" if self.auto else "throughput",
                profiles=Profiles.COMING if self.unprofiled else Profiles.KNOWN,
                by_costs={} if by_costs is None else {"throughput": by_costs},
            ),
        )
        strategy = "guided" if self.unprofiled else "shisha"
        tunes = rng.random() < 0.9 or self.unprofiled
        options = SearchOptions(strategy, rng.randint(1, 4), "nlfep") if tunes else None
        warm_up = rng.choice((0, 1, 2))
        self.tuning = Tuning(self.lifecycle, choice, options, warm_up)
        at_once = GreedyPlacement(dict.fromkeys(self.devices, COSTS), operators_of)
        placing = None
        if rules.devices:
            placing = Placing(self.lifecycle, lambda: self.tuning.searching, "exact", at_once)
        for part in (self.lifecycle.epochs, choice, self.tuning, self.tuning.course, self.tuning.searches, placing):
            if broken is not None and issubclass(broken, type(part)):
                part.__class__ = broken
        self.cores = Cores(self.lifecycle, self.tuning, placing)
        self.books = Books(self.machine, kept, by_costs, warm_up)
        self.books.profiles = choice.profiles
        self.books.objective = choice.objective
        self.counted = ev.FramesCounted()
        self.workers = Workers(rng, slot_count, self.books.plans)
        self.tuner = Tuner(rng, honest=rng.random() < 0.5)
        self.placer = Placer(rng)
        for name in self.names:
            self.placer.slower[name, "d0"] = rng.choice((1.0, 1.0, 3.0))
        self.now = 0.0
        self.frames = self.clients_proposals = self.events = 0
        self.over = False
        self.trace: deque[tuple[float, CoreEvent, list[Outward]]] = deque(maxlen=_TRACE_KEPT)
        self.old_messages: list[ev.TunerSaid | ev.PlacerSaid] = []
        workers = self.workers
        self._carry_out: dict[type, Callable[[Any], None]] = {
            do.Fill: lambda outward: workers.fill(outward, lent=False),
            do.RunPart: workers.give,
            do.Start: workers.start,
            do.Kill: workers.doom,
            do.PrepareStage: workers.prepare,
            do.RetireEpoch: workers.retire,
            TellTuner: lambda outward: self.tuner.hear(outward.message),
            TellPlacer: lambda outward: self.placer.hear(outward.message),
        }

    def _place(self, name: str) -> Place:
        return Place(name, (), core_count=1, threads=1, speed=1.0, rank=self.rng.choice((1, 2)), memory="ram")

    def _kept_before(self) -> BestPlan:
        plan = plain_plan(self.rng, self.names)
        return BestPlan(plan, Measurement((1e-3,) * len(plan.stages), 0.01, 32, 1.0), plan.places)

    # --- the run ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        rng = self.rng
        unrest = rng.choice((0, 1, 2))
        workers = self.workers
        faults = (workers.die, self.hang, self.place_down, self.tuner_dies, self.placer_dies, self.drift)
        acts: list[Callable[[], object]] = [
            *[self.serve] * rng.choice((1, 20, 40)),
            *[self.work] * 8,
            *[self.children] * 20,
            *[self.pass_time] * 3,
            *[self.look] * (20 if self.devices else 0),
            *[self.client_sets_plan] * rng.choice((0, 0, 3)),
            *[self.pause] * rng.choice((0, 0, 3)),
            *[self.search] * rng.choice((0, 1, 3)),
            self.set_options,
            self.speed,
            *[self.profiled] * (2 if self.unprofiled else 0),
            *[self.look_at_load] * (12 if self.auto else 0),
            *[self.crowd] * (6 if self.shares else 0),
            *[self.say_again] * 3,
            *[self.device_slows] * (2 if self.devices else 0),
            *(*faults, self.place_up, self.place_up) * unrest,
        ]
        end = rng.choice((self.drain, self.stop, *[self.heal] * 8))
        try:
            self.feed(le.Tick())
            if rng.random() < 0.7:
                self._go_live()
            for _ in range(3 * self.auto):
                self.look_at_load()
            for _ in range(rng.randint(20, 140)):
                rng.choice(acts)()
            end()
            self._look_at_what_is_left()
        except (AssertionError, UnknownTransition, LookupError, ValueError) as error:
            raise BrokenPromise(self._report(error)) from error

    def _go_live(self) -> None:
        """Begin as daemons do on good days: workers come up, and a plan goes live."""
        for _ in range(4):
            for process in self.workers.alive:
                self.workers.work(process)
            while self.workers.messages:
                self.deliver()
            while self.placer.inbox or self.placer.said:
                self.children()

    def feed(self, event: CoreEvent) -> None:
        """One event to the cores; what they say is carried out, in order, before anything else."""
        self.events += 1
        self.books.hear(event)
        said = self.cores.handle(event, self.now)
        self.trace.append((self.now, event, said))
        self.books.note(said, available=self.lifecycle.available, searching=self.tuning.searching)
        for outward in said:
            carry_out = self._carry_out.get(type(outward))
            if carry_out is not None:
                carry_out(outward)
        if self.validate:
            check_cores(self.cores)

    def _report(self, error: Exception) -> str:
        lines = [
            f"{now:8.3f} {event}\n" + "".join(f"           -> {i}\n" for i in made) for now, event, made in self.trace
        ]
        setup = f"places {self.names}, devices {bool(self.devices)}, honest {self.tuner.honest}"
        return f"seed {self.seed}: {type(error).__name__}: {error}\n{setup}\n{''.join(lines)}"

    # --- what clients and operators do ------------------------------------------------------------------------

    def client_sets_plan(self) -> None:
        plan = plain_plan(self.rng, self.names)
        if self.rng.random() < 0.1:
            plan = Plan(plan.stages[1:])
        self.clients_proposals += 1
        self.feed(le.PlanProposed(le.Owner.CLIENT, self.clients_proposals, plan))
        for _ in range(self.rng.randint(0, 6)):  # the tuner goes on until it is live
            self.children()

    def pause(self) -> None:
        if self.tuning.options is not None:
            self.feed(ev.PauseAsked("a client has paused it"))

    def search(self) -> None:
        if self.tuning.options is not None:
            self.feed(ev.SearchAsked("a client has asked for it"))

    def set_options(self) -> None:
        if self.tuning.options is not None:
            strategy = self.rng.choice((None, "shisha", "guided")) if self.unprofiled else None
            self.feed(ev.OptionsSet(strategy, self.rng.choice((None, 1, 2, 5))))

    def profiled(self) -> None:
        """What layers cost has been measured, or will never be; said again, it is of other links."""
        if self.rng.random() < 0.45:
            self.feed(ev.ProfilerSaid(NotProfiled("the engine died")))
        else:
            by_costs = plain_plan(self.rng, self.names)
            self.feed(ev.ProfilerSaid(ModelProfiled(StoredCosts(b"{}"), (("throughput", by_costs),), 1.0)))

    def speed(self) -> None:
        """A place is made slower or faster, perhaps what it was."""
        name, speed = self.rng.choice(self.names), self.rng.choice((0.25, 0.5, 1.0))
        before = self.machine.place(name).speed
        self.layer_s[name] *= before / speed
        self.machine = self.machine.with_speed(name, speed)
        self.feed(ev.MachineChanged(self.machine, f"the speed of {name} is {speed:g} now"))

    def place_down(self) -> None:
        self.feed(le.PlaceDown(self.rng.choice(self.names)))

    def place_up(self) -> None:
        name = self.rng.choice(self.names)
        was_available = name in self.lifecycle.available
        self.feed(le.PlaceUp(name))
        if not was_available:
            self.feed(ev.PlaceReturned(name))

    def crowd(self) -> None:
        """Other models compute frames on some of the places, or on none."""
        some = self.rng.sample(self.names, self.rng.randint(0, len(self.names)))
        self.feed(ev.CrowdSeen(tuple(some) if self.rng.random() < 0.5 else ()))

    # --- what goes wrong --------------------------------------------------------------------------------------

    def hang(self) -> None:
        process = self.workers.hang()
        if process is not None and self.rng.random() < 0.7:
            self.feed(le.WorkerHung(process.incarnation, "no sign of life"))

    def tuner_dies(self) -> None:
        self.tuner.die()

    def placer_dies(self) -> None:
        self.placer.die()

    def drift(self) -> None:
        """A place takes other than it did, and nobody is told."""
        self.layer_s[self.rng.choice(self.names)] *= self.rng.choice((0.5, 2.0))

    def device_slows(self) -> None:
        self.placer.slower[self.rng.choice(self.names), self.rng.choice(DEVICES)] = self.rng.choice((0.5, 1.0, 3.0))

    def say_again(self) -> None:
        """Something that was heard before: of a search that is over, or (not of an honest tuner) of this one."""
        if self.old_messages:
            said = self.rng.choice(self.old_messages[-4:])
            if isinstance(said, ev.PlacerSaid) or not self.tuner.honest or said.message.run != self.books.run:
                self.feed(said)

    # --- what time, workers and children do -------------------------------------------------------------------

    def pass_time(self) -> None:
        wake = self.lifecycle.next_wake_s()
        if wake is not None and self.rng.random() < 0.3:
            self.now = max(self.now, wake)
        else:
            self.now += self.rng.random() * 2
        self.feed(le.Tick())

    def look(self) -> None:
        self.feed(ev.Look())

    def look_at_load(self) -> None:
        """The daemon is busy for a while, or calm, whatever frames the world really sends."""
        busy = self.rng.random() < 0.5
        self.feed(ev.HostSeen(self.rng.choice((0.0, 0.0, 0.4)), self.rng.choice((0.1, 0.6, 0.9))))
        for _ in range(self.rng.randint(1, 16)):
            before, frames = self.counted, 1000 if busy else 1
            arrived, met = before.arrived + frames, before.met + (frames if busy else 0)
            self.counted = ev.FramesCounted(arrived, met, arrived, before.latency_s + 9.0 * busy, 20 if busy else 1)
            self.now += 0.25
            self.feed(self.counted)
        if self.rng.random() < 0.7:
            self._go_live()

    def work(self) -> None:
        """Every worker takes a step, and some of what they have said is heard."""
        for process in self.workers.alive:
            if not process.hung:
                self.workers.work(process)
        self.rng.shuffle(self.workers.messages)
        for _ in range(self.rng.randint(0, len(self.workers.messages))):
            self.deliver()

    def deliver(self) -> None:
        message = self.workers.messages.pop()
        if isinstance(message, le.WorkerGone):
            self.workers.processes[message.incarnation].parts.clear()
        elif isinstance(message, le.PartDone):
            self._part_taken(message.descriptor)
        self.feed(message)

    def _part_taken(self, part: le.Descriptor) -> None:
        if part.epoch not in self.lifecycle.epochs.live:
            return
        stage = self.lifecycle.epochs.live[part.epoch].plan.stages[part.stage]
        noise = self.rng.lognormvariate(0, _NOISE)
        if stage.placement:
            segments_s = tuple(s * noise for s in self.placer.taken_s(stage.place, stage.placement))
            self.feed(ev.PartTaken(part.epoch, part.stage, stage.place, sum(segments_s), segments_s))
        else:
            service_s = stage.layer_count * self.layer_s[stage.place] * noise
            self.feed(ev.PartTaken(part.epoch, part.stage, stage.place, service_s))

    def serve(self, frames: int = 6) -> None:
        """Some frames come, and are computed as far as workers can."""
        for _ in range(frames):
            self.frames += 1
            self.now += _FRAME_S
            self.feed(le.FrameArrived(self.frames, "client", None, 1))
        for _ in range(2 * frames):
            busy = [worker for worker in self.workers.alive if worker.parts and not worker.hung]
            if not busy:
                return
            for process in busy:
                self.workers.work(process)
            while self.workers.messages and self.rng.random() < 0.95:
                self.deliver()

    def children(self) -> bool:
        """The tuner or the placer takes a step, or is heard, or is started again; whether there was anything to do."""
        tuner, placer = self.tuner, self.placer
        steps: list[Callable[[], object]] = []
        if not tuner.alive:
            steps.append(self._restart_tuner)
        if not placer.alive:
            steps.append(self._restart_placer)
        if tuner.inbox:
            steps.append(tuner.work)
        if placer.inbox:
            steps.append(placer.work)
        if tuner.said:
            steps.append(lambda: self._say(ev.TunerSaid(tuner.said.popleft())))
        if placer.said:
            steps.append(lambda: self._say(ev.PlacerSaid(placer.said.popleft())))
        if steps:
            self.rng.choice(steps)()
        return bool(steps)

    def _restart_tuner(self) -> None:
        self.tuner.alive = True
        self.feed(ev.TunerDied("killed by signal 9"))

    def _restart_placer(self) -> None:
        self.placer.alive = True
        self.feed(ev.PlacerDied("killed by signal 9"))

    def _say(self, said: ev.TunerSaid | ev.PlacerSaid) -> None:
        self.old_messages.append(said)
        self.feed(said)

    # --- the end ----------------------------------------------------------------------------------------------

    def drain(self) -> None:
        self.feed(le.Drain())

    def stop(self) -> None:
        """Whatever is proposed from here on is refused."""
        self.feed(le.Stop())
        self.over = True
        assert not self.books.proposed, f"{self.books.proposed} were not settled"

    def heal(self) -> None:
        """No more faults: the doomed die, messages arrive, children answer, and frames come while anything goes on."""
        self.workers.healing = self.tuner.healing = self.placer.healing = True
        for process in self.workers.alive:
            if process.hung:
                self.workers.end(process)
        if self.unprofiled:
            self.profiled()
        if self.shares:
            self.feed(ev.CrowdSeen(()))
        for step in range(_MOST_STEPS_TO_REST):
            for process in self.workers.alive:
                self.workers.work(process)
            while self.workers.messages:
                self.deliver()
            if self.children():
                continue
            if self._at_rest():
                self._check_rest()
                return
            self.serve()
            if self.devices:
                self.look()
            if self.auto:
                self.feed(self.counted)
            if step % 4 == 0:
                self.pass_time()
        raise AssertionError(f"planning does not come to rest: {description(self.tuning, self.now)}")

    def _at_rest(self) -> bool:
        if self.books.proposed or any(worker.building for worker in self.workers.alive):
            return False
        live = self.books.live
        serves = live is not None and set(live[1].places) <= set(self.lifecycle.available)
        return serves and self._reported() not in (State.TUNING.value, State.SETTLING.value, State.COMPARING.value)

    def _reported(self) -> str:
        """What it is doing, whether frames come or not."""
        doing = str(description(self.tuning, self.now)["state"])
        return self.tuning.state.value if doing == WAITING else doing

    def _check_rest(self) -> None:
        books, state = self.books, self._reported()
        assert books.live is not None
        if self.tuning.options is None:
            assert state == State.OFF.value, f"it is {state} without a tuner"
        else:
            at_rest = {State.PAUSED.value, State.WATCHING.value}
            if books.profiles is Profiles.FAILED:
                at_rest.add(State.NO_COSTS.value)
            assert state in at_rest, f"it is {state}, nothing is going on"
        left = books.left_by_pause
        assert left is None or state != State.PAUSED.value or books.live[1] == left, (
            f"{left} is best, {books.live} live"
        )
        if state == State.WATCHING.value and books.best is not None and books.best[1].can_run:
            kept = books.kept.get(books.key(books.over))
            assert kept is not None, f"{books.live} is watched, nothing is kept"
            reported = description(self.tuning, self.now)["best_plan"]
            plans = {str(books.live[1]), str(kept.plan), reported}
            assert len(plans) == 1, f"live {books.live[1]}, kept {kept.plan}, reported {reported}"

    def _look_at_what_is_left(self) -> None:
        names = [name for name in self.books.proposed if name[0] is not le.Owner.CLIENT]
        assert (
            set(names)
            == {
                (proposal.proposed.owner, proposal.proposed.number)
                for proposal in self.lifecycle.epochs.proposals
                if proposal.proposed.owner is not le.Owner.CLIENT
            }
            | self._preparing()
        ), f"{names} were never settled"
        seen = self.books.seen
        trials = seen["trial"] + seen["trial of what cannot run"]
        assert seen["counted"] == trials, f"{seen['counted']} trials are counted, {trials} are told"

    def _preparing(self) -> set[tuple[le.Owner, int]]:
        preparing = self.lifecycle.epochs.preparing
        proposed = None if preparing is None else preparing.proposed
        automatic = proposed is not None and proposed.owner is not le.Owner.CLIENT
        return {(proposed.owner, proposed.number)} if proposed is not None and automatic else set()


def run(seed: int, broken: type | None = None, *, validate: bool = True) -> World:
    """Play the interleaving of `seed`; raises `BrokenPromise` if planning does not keep its promises.

    `broken` takes the place of the class that it derives from. Without `validate` only what shows from outside is
    looked at. Windows are small, so that a short run meets whole searches.
    """
    parts = {part.__name__: broken for part in (SearchRun, Window) if broken is not None and issubclass(broken, part)}
    small: dict[str, Any] = {"FRAMES": MIN_FRAMES, "KEPT_FRAMES": 2 * MIN_FRAMES, "MAX_FRAMES": 2 * MIN_FRAMES}
    with ExitStack() as patched:
        patched.enter_context(mock.patch.multiple(measuring, **small))
        patched.enter_context(mock.patch.object(placing_module, "FRAMES", 2))
        for name, part in parts.items():
            patched.enter_context(mock.patch.object(searches, name, part))
        world = World(seed, broken, validate=validate)
        world.run()
    return world
