"""A daemon that compares plans, as its cores see it: real cores, workers that are up at once, frames in virtual time.

What a frame takes on a team is `truth`'s to say, with noise; a client keeps `in_flight` frames under way.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import instructions as td
from shisha_rt.core.tuning.best import BestPlan, BestPlans
from shisha_rt.core.tuning.choice import Basis, Choice
from shisha_rt.core.tuning.cores import CoreEvent, Cores
from shisha_rt.core.tuning.run import SearchOptions
from shisha_rt.core.tuning.state import Profiles, State
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.costs.engine_trials import EnginesTried, EngineTime, EngineTrial
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.plan.engine import STAGE_ENGINES, StageEngine
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.rate import AnyObjective
from shisha_rt.plan.verify import PlanRules
from tests.core.lifecycle.invariants import check
from tests.core.tuning.invariants import check_cores

LAYERS = 4
WARM_UP = 3
LOOK_S = 0.25
PAUSE_S = 0.004
"""Of a client, when a frame of its was refused."""
CHECKED_EVERY = 64
"""Of the events of frames, which are nearly all; after every other event all that must hold is looked at, but after a
look only once: after its last event.
"""
SELDOM_CHECKED = (
    *(le.FrameArrived, le.PartDone, ev.PartTaken, ev.FrameAnswered, ev.FrameAlone),
    *(le.Tick, ev.FramesCounted),
)
NAMES = ("core0", "core1")
TRIED = EnginesTried(
    (
        EngineTrial(
            "onnxruntime", "1", runs=True, times=(EngineTime(1, 0.010, 0.01, 9), EngineTime(2, 0.006, 0.012, 9))
        ),
        EngineTrial("openvino", "1", runs=True, times=(EngineTime(1, 0.010, 0.01, 9), EngineTime(2, 0.006, 0.012, 9))),
    )
)


def machine_of(names: tuple[str, ...]) -> Machine:
    places = tuple(Place(name, (core,), 1, 1, 1.0, 1, "ram") for core, name in enumerate(names))
    return Machine("m", "m", (Memory("ram"),), places)


def whole(*teams: tuple[str, ...], engine: StageEngine = "onnxruntime") -> Plan:
    return Plan((Stage(((0, LAYERS - 1),), teams, engine=engine),))


def copies(engine: StageEngine = "onnxruntime", names: tuple[str, ...] = NAMES) -> Plan:
    return whole(*((name,) for name in names), engine=engine)


def team(engine: StageEngine = "onnxruntime", names: tuple[str, ...] = NAMES) -> Plan:
    return whole(names, engine=engine)


class World:
    """It begins with copies, as `profiles` are coming. `truth`: seconds of a frame on one team of a plan's stage; with
    a `batch`, of each of so many that share a run. `layers_s`: when layers were begun to be measured. `others_ratio`:
    what other programs use of the cores.
    """

    def __init__(
        self,
        truth: Callable[[Stage], float],
        *,
        objective: AnyObjective = "throughput",
        names: tuple[str, ...] = NAMES,
        noise: float = 0.01,
        refuse: Callable[[Plan], bool] = lambda plan: False,
        tried: EnginesTried | None = TRIED,
        kept: dict[str, BestPlan] | None = None,
        seed: int = 3,
        most_batch: int = 1,
        target_s: float = math.inf,
        engines: tuple[StageEngine, ...] = STAGE_ENGINES,
    ) -> None:
        self.truth, self.noise, self.refuse = truth, noise, refuse
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.records: list[dict[str, Any]] = []
        self.kept: list[td.Keep] = []
        self.lives: list[Plan] = []
        self.layers_s: list[float] = []
        self.sent = self.answered = self.failed = self.refused = 0
        self.others_ratio = 0.0
        self._again_s = 0.0
        self._events: list[tuple[float, int, CoreEvent]] = []
        self._numbers = itertools.count()
        self._alone: dict[int, float] = {}
        self._sent_s: dict[int, float] = {}
        self._latency_s = 0.0
        self._look_s = 0.0
        self._handled = 0
        self._counted = ev.FramesCounted()
        machine = machine_of(names)
        rules = PlanRules(LAYERS, names, kinds=dict.fromkeys(names, 1), engines=engines, most_batch=most_batch)
        self.lifecycle = Lifecycle(rules, 2 * len(names) + 2, Policy(target_s=target_s))
        choice = Choice(
            machine,
            rules,
            [1.0] * LAYERS,
            BestPlans(kept or {}),
            Basis(objective, replicate=True, engines=engines, tried=tried, profiles=Profiles.COMING),
        )
        options = SearchOptions("guided", alpha=10, balance="nlfep")
        self.tuning = Tuning(self.lifecycle, choice, options, WARM_UP)
        self.cores = Cores(self.lifecycle, self.tuning, None)
        self.post(le.Tick())

    @property
    def plan(self) -> Plan:
        assert self.lifecycle.live is not None
        return self.lifecycle.live[1]

    @property
    def state(self) -> State:
        return self.tuning.state

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == kind]

    def post(self, event: CoreEvent) -> None:
        events = deque([event])
        while events:
            event = events.popleft()
            made = self.cores.handle(event, self.now_s)
            for instruction in made:
                events += self._carry_out(instruction)
            self._handled += 1
            if self._handled % CHECKED_EVERY == 0 or not isinstance(event, SELDOM_CHECKED):
                check(self.lifecycle, made)
                check_cores(self.cores)

    def _carry_out(self, instruction: Any) -> list[CoreEvent]:
        match instruction:
            case do.Start():
                return [le.WorkerReady(instruction.incarnation)]
            case do.Kill():
                return [le.WorkerGone(instruction.incarnation, None, instruction.reason)]
            case do.PrepareStage(epoch=epoch, stage=stage, incarnation=incarnation):
                if self.refuse(instruction.plan):
                    return [le.StageFailed(epoch, stage, incarnation, "the engine raised")]
                return [le.StagePrepared(epoch, stage, incarnation)]
            case do.Settled(ending=do.Ending.LIVE):
                self.lives.append(instruction.plan)
            case td.TellProfiler():
                self.layers_s.append(self.now_s)
            case do.RunPart(descriptor=part):
                self._run(part)
            case do.Fill(frame=frame):
                frames = self.lifecycle.frames
                if len(frames.free_slots) == frames.slot_count - 1:
                    self._alone = {frame: self.now_s}
                else:
                    self._alone = {}
            case do.Collect():
                return self._collected(instruction)
            case do.Deliver():
                self.answered += 1
                self.failed += instruction.kind is not None
                self._latency_s += self.now_s - self._sent_s.pop(instruction.frame)
            case do.Refuse():
                self.refused += 1
                self._again_s = self.now_s + PAUSE_S
            case td.Write():
                self.records.append(msgspec.json.decode(msgspec.json.encode(instruction.record)))
            case td.Keep():
                self.kept.append(instruction)
        return []

    def _collected(self, collect: do.Collect) -> list[CoreEvent]:
        events: list[CoreEvent] = []
        frame, epoch = collect.frame, collect.epoch
        if self.cores.tuning.wants_answer(self.now_s):
            frames = self.lifecycle.frames
            events.append(ev.FrameAnswered(epoch, frames.streams.undelivered, collect.left, frames.kept_out))
        if frame in self._alone:
            events.append(ev.FrameAlone(epoch, self.now_s - self._alone[frame]))
        return events

    def _run(self, part: le.Descriptor) -> None:
        """A worker computes one part after the other."""
        worker = self.lifecycle.places.workers[part.incarnation]
        stage = self.lifecycle.epochs.live[part.epoch].plan.stages[part.stage]
        free_s = max([at_s for at_s, _, event in self._events if _of(event) == part.incarnation], default=self.now_s)
        frames = len(part.frames)
        run = stage if frames == stage.batch else replace(stage, batch=frames)
        frame_s = self.truth(run) * self.rng.lognormvariate(0, self.noise)
        took_s = frames * frame_s
        due_s = max(free_s, self.now_s) + took_s
        heapq.heappush(self._events, (due_s, next(self._numbers), le.PartDone(part, took_s)))
        heapq.heappush(
            self._events,
            (
                due_s - 1e-9,
                next(self._numbers),
                ev.PartTaken(part.epoch, part.stage, worker.place, frame_s, full=frames == stage.batch),
            ),
        )

    def send(self) -> None:
        self.sent += 1
        self._sent_s[self.sent] = self.now_s
        self.post(le.FrameArrived(self.sent, "client", None, 1))

    def serve(self, seconds: float, in_flight: int = 6, until: Callable[[], bool] = lambda: False) -> None:
        """A client keeps so many frames under way; what time alone does happens, too."""
        end_s = self.now_s + seconds
        while self.now_s < end_s and not until():
            while self._out < in_flight and self.now_s >= self._again_s:
                self.send()
            self.step(end_s)

    def step(self, end_s: float) -> None:
        """The next thing that happens, if that is before `end_s`."""
        at_s = min(self._look_s, self._events[0][0] if self._events else end_s, end_s)
        if self._again_s > self.now_s:
            at_s = min(at_s, self._again_s)
        self.now_s = max(self.now_s, at_s)
        if self._look_s <= self.now_s:
            self._look_s = self.now_s + LOOK_S
            met = self.lifecycle.frames.streams.met
            self._counted = ev.FramesCounted(self.sent, met, self.answered, self._latency_s, self._out)
            self.post(le.Tick())
            self.post(self._counted)
            self.post(ev.HostSeen(self.others_ratio))
        elif self._events and self._events[0][0] <= self.now_s:
            _, _, event = heapq.heappop(self._events)
            if isinstance(event, le.PartDone) or self.cores.wants_parts(self.now_s):
                self.post(event)

    @property
    def _out(self) -> int:
        return self.sent - self.answered - self.refused

    def kill(self, place: str) -> None:
        """Its worker dies, and is started again."""
        worker = self.lifecycle.places.serving.get(place)
        if worker is not None:
            self._events = [entry for entry in self._events if _of(entry[2]) != worker.incarnation]
            heapq.heapify(self._events)
            self.post(le.WorkerGone(worker.incarnation, None, "killed"))


def _of(event: CoreEvent) -> int | None:
    return event.descriptor.incarnation if isinstance(event, le.PartDone) else None
