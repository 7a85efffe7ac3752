"""A daemon's lifecycle with very many places in virtual time: nothing is computed.

The core is the real one. Its workers answer when a part would be done, and clients keep enough frames in flight for all
places to be busy. So the core's CPU time for each event can be measured, and a loop can be simulated that takes time
for each event.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules

_CLIENTS = 8
_FOR_EVER_S = 1e9


@dataclass(slots=True)
class VirtualDaemon:
    """A copy of the whole model on each place, which takes `service_s` (places,) for a frame.

    `loop_s`: by event, the loop's time before the event is handled; none without an entry.
    """

    service_s: Sequence[float]
    loop_s: dict[type, float] = field(default_factory=dict)
    now_s: float = 0.0
    answered: int = 0
    cpu_s: float = 0.0
    lifecycle: Lifecycle = field(init=False)
    _pending: list[tuple[float, int, ev.Event]] = field(init=False, default_factory=list)
    _number: itertools.count[int] = field(init=False, default_factory=itertools.count)
    _free_at_s: list[float] = field(init=False)
    _on: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.service_s)
        names = tuple(f"p{index}" for index in range(count))
        policy = Policy(max_in_flight=4 * count + 64, start_s=_FOR_EVER_S, prepare_s=_FOR_EVER_S)
        self.lifecycle = Lifecycle(PlanRules(1, names), 2 * count + 2, policy)
        self._free_at_s = [0.0] * count

    def start(self) -> float:
        """Start all workers and load the plan; return the lifecycle's CPU seconds."""
        begun_s = self.cpu_s
        starts = self._starts(self._handle(ev.Tick()))
        while starts:
            further = [one for start in starts for one in self._handle(ev.WorkerReady(start.incarnation))]
            starts = self._starts([*further, *self._handle(ev.Tick())])
        at = {name: index for index, name in enumerate(self.lifecycle.places.by_name)}
        self._on = {worker.incarnation: at[worker.place] for worker in self.lifecycle.places.workers.values()}
        whole = Plan.chain([(0, 0, list(at))])
        asked = self._handle(ev.PlanProposed(ev.Owner.CLIENT, 1, whole))
        for one in asked:
            if isinstance(one, do.PrepareStage):
                self._handle(ev.StagePrepared(one.epoch, one.stage, one.incarnation))
        return self.cpu_s - begun_s

    def fill(self) -> None:
        """Send frames for all slots, and some that wait for a slot."""
        for _ in range(2 * len(self.service_s) + 66):
            self._send()

    def serve(self, frames: int) -> float:
        """Run until `frames` further answers; return the lifecycle's CPU seconds for them."""
        begun_s, until = self.cpu_s, self.answered + frames
        while self.answered < until and self._pending:
            at_s, _, event = heapq.heappop(self._pending)
            if isinstance(event, ev.PartDone) and event.descriptor.incarnation not in self.lifecycle.places.workers:
                continue  # it died first
            self.now_s = max(self.now_s, at_s) + self.loop_s.get(type(event), 0.0)
            self._see_to(self._handle(event))
        return self.cpu_s - begun_s

    def lose(self) -> None:
        """Kill a worker; its place then waits for the next one."""
        worker = next(iter(self.lifecycle.places.workers.values()))
        self._see_to(self._handle(ev.WorkerGone(worker.incarnation, None, "killed")))

    def _send(self) -> None:
        number = next(self._number)
        event = ev.FrameArrived(number, number % _CLIENTS, None, 1000)
        heapq.heappush(self._pending, (self.now_s, number, event))

    def _handle(self, event: ev.Event) -> list[do.Instruction]:
        begun_s = time.process_time()
        done = self.lifecycle.handle(event, self.now_s)
        self.lifecycle.next_wake_s()
        self.cpu_s += time.process_time() - begun_s
        return done

    def _see_to(self, instructions: Sequence[do.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, do.RunPart):
                index = self._on[one.descriptor.incarnation]
                service_s = self.service_s[index]
                self._free_at_s[index] = max(self._free_at_s[index], self.now_s) + service_s
                done = ev.PartDone(one.descriptor, service_s)
                heapq.heappush(self._pending, (self._free_at_s[index], next(self._number), done))
            elif isinstance(one, do.Deliver):
                self.answered += 1
                self._send()

    def _starts(self, instructions: Sequence[do.Instruction]) -> list[do.Start]:
        return [one for one in instructions if isinstance(one, do.Start)]
