"""A daemon's lifecycle with very many places in virtual time: nothing is computed.

The core is the real one. Its workers answer when a part would be done, and clients keep enough frames in flight for all
places to be busy. So the core's CPU time for each event can be measured, and a loop can be simulated that takes time
for each event.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from benchmarks.rigs.paper_daemon import PaperDaemon
from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules

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
