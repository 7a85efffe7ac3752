"""A simulated daemon: its cores in virtual time, with given times of parts.

A client keeps a number of frames in flight, in one stream. Hand-overs and the daemon itself take no time.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules


@dataclass(slots=True)
class _Worker:
    """`service_s`: of the part that it runs; None: it is idle."""

    place: str
    waiting: deque[do.RunPart] = field(default_factory=deque)
    service_s: float | None = None


class PaperDaemon:
    """`handle`: of a lifecycle, or of all cores. A place builds each stage of a plan in `build_s`, while it goes on
    computing; the first plan's stages take no time. `loop_s`: by event, what the daemon's loop takes before it is
    handled; none without an entry.
    """

    def __init__(
        self,
        handle: Callable[[Any, float], Sequence[Any]],
        in_flight: int,
        build_s: float,
        loop_s: Mapping[type, float] = MappingProxyType({}),
    ) -> None:
        self.now_s = 0.0
        self.answered_s: list[float] = []
        self._handle = handle
        self._in_flight = in_flight
        self._build_s = build_s
        self._loop_s = loop_s
        self.workers: dict[int, _Worker] = {}
        self.coming: list[tuple[float, int, Any]] = []
        self._count = 0
        self._frames = 0

    def service_s(self, part: do.RunPart, place: str) -> float:
        """Seconds of a part that begins now."""
        raise NotImplementedError

    def taken(self, what: ev.Descriptor, place: str, service_s: float) -> None:
        """Called when a part is done, before the lifecycle is told."""

    def hear(self, instruction: Any) -> None:
        """Called for instructions other than those for workers and answers."""

    def start(self) -> None:
        self.at(self.now_s, ev.Tick())
        self.fill()

    def fill(self) -> None:
        for _ in range(self._in_flight):
            self._arrive()

    def run(self, until_s: float) -> None:
        while self.coming and self.coming[0][0] <= until_s:
            self.step()

    def step(self) -> None:
        at_s, _, event = heapq.heappop(self.coming)
        if isinstance(event, ev.PartDone):
            worker = self.workers.get(event.descriptor.incarnation)
            if worker is None:
                return  # it died first
        self.now_s = max(self.now_s, at_s) + self._loop_s.get(type(event), 0.0)
        if isinstance(event, ev.PartDone):
            assert worker is not None
            assert worker.service_s is not None
            self.taken(event.descriptor, worker.place, worker.service_s)
            worker.service_s = None
            self._run_next(worker, at_s)
        self.post(event)

    def at(self, at_s: float, event: Any) -> None:
        self._count += 1
        heapq.heappush(self.coming, (at_s, self._count, event))

    def post(self, event: Any) -> None:
        for instruction in self._handle(event, self.now_s):
            self.carry_out(instruction)

    def _arrive(self) -> None:
        self._frames += 1
        self.at(self.now_s, self.frame(self._frames))

    def frame(self, number: int) -> ev.FrameArrived:
        return ev.FrameArrived(number, "client", "stream", 1)

    def carry_out(self, instruction: Any) -> None:
        match instruction:
            case do.RunPart(descriptor=descriptor):
                worker = self.workers[descriptor.incarnation]
                worker.waiting.append(instruction)
                self._run_next(worker, self.now_s)
            case do.Deliver():
                self.answered_s.append(self.now_s)
                self._arrive()
            case do.Start(place, incarnation):
                self.workers[incarnation] = _Worker(place)
                self.at(self.now_s, ev.WorkerReady(incarnation))
            case do.PrepareStage(incarnation=incarnation, epoch=epoch, stage=stage):
                self.at(self.now_s + self._build_s * (epoch > 1), ev.StagePrepared(epoch, stage, incarnation))
            case _:
                self.hear(instruction)

    def _run_next(self, worker: _Worker, from_s: float) -> None:
        if worker.service_s is None and worker.waiting:
            part = worker.waiting.popleft()
            worker.service_s = self.service_s(part, worker.place)
            self.at(from_s + worker.service_s, ev.PartDone(part.descriptor))


# --- very many places -------------------------------------------------------------------------------------------------


_CLIENTS: Final = 8
_WAITING: Final = 66
"""Frames that wait for a slot, beyond two for each place."""
_FOR_EVER_S: Final = 1e9


class VirtualDaemon(PaperDaemon):
    """A copy of the whole model on each place, which takes `service_s` (places,) for a frame. `cpu_s`: the core's."""

    def __init__(self, service_s: Sequence[float], loop_s: Mapping[type, float] = MappingProxyType({})) -> None:
        count = len(service_s)
        self._service_s = {f"p{index}": seconds for index, seconds in enumerate(service_s)}
        policy = Policy(max_in_flight=4 * count + 64, start_s=_FOR_EVER_S, prepare_s=_FOR_EVER_S)
        self.lifecycle = Lifecycle(PlanRules(1, tuple(self._service_s)), 2 * count + 2, policy)
        self.cpu_s = 0.0
        self._serving = False
        super().__init__(self._timed, 2 * count + _WAITING, 0.0, loop_s)

    def begin(self) -> float:
        """Start all workers, load the plan and send frames for all slots; return the core's CPU seconds until then."""
        begun_s = self.cpu_s
        self.post(ev.Tick())
        while self.coming:
            self.step()
            if not self.coming:
                self.post(ev.Tick())
        self.post(ev.PlanProposed(ev.Owner.CLIENT, 1, Plan.chain([(0, 0, list(self._service_s))])))
        while self.coming:
            self.step()
        started_s, self._serving = self.cpu_s - begun_s, True
        self.fill()
        return started_s

    def serve(self, frames: int) -> float:
        """Run until `frames` further answers; return the core's CPU seconds for them."""
        begun_s, until = self.cpu_s, len(self.answered_s) + frames
        while len(self.answered_s) < until and self.coming:
            self.step()
        return self.cpu_s - begun_s

    def lose(self) -> None:
        """Kill a worker; its place then waits for the next one."""
        incarnation = next(iter(self.lifecycle.places.workers))
        del self.workers[incarnation]
        self.post(ev.WorkerGone(incarnation, None, "killed"))

    def service_s(self, part: do.RunPart, place: str) -> float:
        return self._service_s[place]

    def frame(self, number: int) -> ev.FrameArrived:
        return ev.FrameArrived(number, number % _CLIENTS, None, 1000)

    def carry_out(self, instruction: Any) -> None:
        if not (self._serving and isinstance(instruction, do.Start)):  # another worker takes longer than all this
            super().carry_out(instruction)

    def _timed(self, event: Any, now_s: float) -> Sequence[Any]:
        begun_s = time.process_time()
        done = self.lifecycle.handle(event, now_s)
        self.lifecycle.next_wake_s()
        self.cpu_s += time.process_time() - begun_s
        return done
