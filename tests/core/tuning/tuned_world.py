"""A daemon as tuning sees it: real cores, workers that answer at once, frames that take what the costs say.

The search is the real one, stepped here instead of in a process of its own.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import instructions as td
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan, BestPlans
from shisha_rt.core.tuning.choice import Basis, Choice
from shisha_rt.core.tuning.cores import CoreEvent, Cores
from shisha_rt.core.tuning.run import SearchOptions
from shisha_rt.core.tuning.state import State
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.tune import ShishaTuner, shisha
from tests.core.lifecycle.invariants import check

SEED = Plan.of([(0, 3, "fast"), (4, 7, "slow")])
BEST = Plan.of([(0, 5, "fast"), (6, 7, "slow")])
ONLY_FAST = Plan.of([(0, 7, "fast")])
MACHINE = Machine(
    "m",
    "m",
    (Memory("ram"),),
    (Place("fast", (0,), 1, 1, 0.5, 1, "ram"), Place("slow", (1,), 1, 1, 0.5, 2, "ram")),
)
WARM_UP = 3
NOISE = 0.002
FRAME_S = 0.001
LOOK_S = 0.25


class World:
    """A daemon of eight equal layers on a fast place and a slow one, three times slower; it starts with the seed.

    `refuse`: plans that no worker prepares. While it `holds`, workers do not answer what they are to prepare.
    """

    def __init__(
        self,
        kept: Mapping[str, BestPlan] | None = None,
        refuse: Callable[[Plan], bool] = lambda plan: False,
        objective: AnyObjective = "throughput",
    ) -> None:
        self.layer_s = {"fast": 0.001, "slow": 0.003}
        self.rng = random.Random(3)
        self.refuse = refuse
        self.mistaken: Plan | None = None  # what the tuner takes for the best after three trials
        self.holds = False
        self.held: list[do.PrepareStage] = []
        self.now_s = 0.0
        self.sent: list[tm.ToTuner] = []
        self.reported: list[tm.Measured] = []
        self.verdicts: list[str] = []
        self.kept: list[td.Keep] = []
        self.ends: list[do.Settled] = []
        self.records: list[dict[str, Any]] = []
        self.counted = ev.FramesCounted()
        self.search: tuple[ShishaTuner, Any] | None = None
        rules = PlanRules(8, ("fast", "slow"))
        self.lifecycle = Lifecycle(rules, 6, Policy())
        choice = Choice(MACHINE, rules, [1.0] * 8, BestPlans(kept or {}), Basis(objective))
        self.tuning = Tuning(self.lifecycle, choice, SearchOptions("shisha", alpha=10, balance="nlfep"), WARM_UP)
        self.cores = Cores(self.lifecycle, self.tuning, None)
        self.wait(0.0)

    @property
    def plan(self) -> Plan:
        assert self.lifecycle.live is not None
        return self.lifecycle.live[1]

    @property
    def epoch(self) -> int:
        assert self.lifecycle.live is not None
        return self.lifecycle.live[0]

    def post(self, event: CoreEvent) -> None:
        events = deque([event])
        while events:
            made = self.cores.handle(events.popleft(), self.now_s)
            for instruction in made:
                match instruction:
                    case do.Start():
                        events.append(le.WorkerReady(instruction.incarnation))
                    case do.Kill():
                        events.append(le.WorkerGone(instruction.incarnation, None, instruction.reason))
                    case do.PrepareStage():
                        self.held.append(instruction)
                    case do.Settled():
                        self.ends.append(instruction)
                    case td.Write():
                        self.records.append(msgspec.json.decode(msgspec.json.encode(instruction.record)))
                    case td.TellTuner():
                        self.sent.append(instruction.message)
                    case td.Keep():
                        self.kept.append(instruction)
                    case td.CountTrial():
                        self.verdicts.append(instruction.verdict)
            check(self.lifecycle, made)
            if not self.holds:
                events.extend(map(self._prepared, self.held))
                self.held.clear()

    def _prepared(self, order: do.PrepareStage) -> le.Event:
        if self.refuse(order.plan):
            return le.StageFailed(order.epoch, order.stage, order.incarnation, "no room")
        return le.StagePrepared(order.epoch, order.stage, order.incarnation)

    def release(self) -> None:
        self.holds = False
        self.wait(0.0)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.post(le.Tick())

    def propose(self, plan: Plan, owner: le.Owner) -> None:
        """A plan that is not the tuner's."""
        self.post(le.PlanProposed(owner, 100, plan, self.epoch))

    def say(self, message: tm.FromTuner) -> None:
        self.post(ev.TunerSaid(message))

    def frame(self) -> None:
        self.now_s += FRAME_S
        epoch, plan = self.epoch, self.plan
        for i, stage in enumerate(plan.stages):
            service_s = stage.layer_count * self.layer_s[stage.place] * self.rng.lognormvariate(0, NOISE)
            self.post(ev.PartTaken(epoch, i, stage.place, service_s))

    def look(self, looks: int, *, frames_per_s: float, in_flight: int) -> None:
        """So many frames come, as many are in flight all the time, and the daemon looks now and then."""
        for _ in range(looks):
            before, frames = self.counted, round(LOOK_S * frames_per_s)
            self.counted = ev.FramesCounted(
                before.arrived + frames,
                before.met + (frames if in_flight > 1 else 0),
                before.answered + frames,
                before.latency_s + in_flight * LOOK_S,
                in_flight,
            )
            self.now_s += LOOK_S
            self.post(self.counted)

    def step_search(self) -> None:
        """What the tuner's process does with the messages that have come."""
        while self.sent:
            message = self.sent.pop(0)
            match message:
                case tm.Begin():
                    tuner = shisha(message.start, message.places, alpha=message.alpha, order=message.order)
                    state, proposal = tuner.init()
                case tm.Measured() if self.search is not None:
                    self.reported.append(message)
                    tuner, state = self.search
                    state, proposal = tuner.step(state, message.measurement)
                case _:
                    self.search = None
                    continue
            self.search = (tuner, state)
            if self.mistaken is not None and self.tuning.searches.trials == 3:
                self.say(tm.Finished(message.run, self.mistaken, "it took noise for a gain"))
            elif proposal.final:
                self.say(tm.Finished(message.run, proposal.plan, proposal.reason))
            else:
                self.say(tm.Try(message.run, proposal.plan, proposal.reason))

    def serve(self, frames: int) -> None:
        for _ in range(frames):
            self.step_search()
            self.frame()
        self.step_search()

    def serve_until(self, done: Callable[[], bool] | State | int, limit: int = 20_000) -> int:
        """Until it is true, or the tuner in that state, or so many trials are done; how many frames it took."""
        for frames in range(limit):
            if self._is(done):
                return frames
            self.serve(1)
        raise AssertionError(f"{self.tuning.state} and not done after {limit} frames")

    def _is(self, done: Callable[[], bool] | State | int) -> bool:
        if isinstance(done, State):
            return self.tuning.state is done
        return self.tuning.searches.trials == done if isinstance(done, int) else done()

    def best(self) -> Plan:
        assert self.tuning.search.best is not None
        return self.tuning.search.best[0]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.records if event["kind"] == kind]
