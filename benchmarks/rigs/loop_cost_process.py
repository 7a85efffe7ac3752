"""A daemon that reports how its loop's CPU time is spent: the methods that frames pass are timed.

Each is charged with its own CPU time, minus that of timed calls within it, minus the cost of timing, which is measured
beforehand. So the sum is about the CPU time of a daemon without timing.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.rigs.child_process import say
from benchmarks.rigs.daemon_process import Orders
from shisha_rt.core.lifecycle.dealing import Dealing
from shisha_rt.core.lifecycle.frames import Frames
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.tuning.tuning import Tuning
from shisha_rt.daemon.counting import Counting
from shisha_rt.daemon.fleet.link import WorkerLink
from shisha_rt.daemon.fleet.telemetry import Telemetry
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.gateway import Gateway, Reply
from shisha_rt.daemon.front.outbox import Outbox
from shisha_rt.daemon.front.requests import Requests
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.prepare import planned
from shisha_rt.daemon.prepared import Planning
from shisha_rt.daemon.server import Daemon
from shisha_rt.daemon.settings import Settings
from shisha_rt.daemon.shell import Shell
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.model.zoo import resolve_model

REST: Final = "the loop itself"
_CALIBRATION: Final = 20_000


@dataclass(frozen=True, slots=True)
class Timed:
    """A method, and the name of its time in reports; `iterates`: it returns an iterator whose steps are timed."""

    owner: type
    method: str
    what: str
    iterates: bool = False


TIMED: Final = (
    Timed(Poller, "poll", "waiting, waking up", iterates=True),
    Timed(Gateway, "receive", "requests: read", iterates=True),
    Timed(Gateway, "_take", "requests: parsed, checked"),
    Timed(Gateway, "tend", "answers and connections tended"),
    Timed(Shell, "submit", "requests: handed in"),
    Timed(Requests, "arrived", "requests: handed in"),
    Timed(Requests, "fill", "slots filled"),
    Timed(Lifecycle, "handle", "lifecycle"),
    Timed(Frames, "arrived", "lifecycle: admission"),
    Timed(Frames, "admit", "lifecycle: admission"),
    Timed(Dealing, "dispatch", "lifecycle: dealing"),
    Timed(WorkerLink, "send", "parts sent to workers"),
    Timed(WorkerLink, "read", "replies: read"),
    Timed(Shell, "_part_done", "replies: taken"),
    Timed(Shell, "post", "instructions carried out"),
    Timed(Counting, "answered", "metrics, telemetry"),
    Timed(Telemetry, "took", "metrics, telemetry"),
    Timed(Tuning, "handle", "tuning"),
    Timed(Requests, "collect", "answers: collected"),
    Timed(Requests, "end", "answers: made"),
    Timed(Reply, "frame", "answers: encoded"),
    Timed(Outbox, "send", "answers: sent"),
    Timed(Daemon, "_look", "looks at all, gauges"),
)


class LoopCost:
    """CPU time of the loop's thread since `begin`, by name. Daemons made after that are timed."""

    def __init__(self) -> None:
        self._spent_ns: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._within_ns = [0]  # by depth: the time charged to calls within
        self._since_ns = 0
        self._inside_ns, self._outside_ns = 0, 0  # cost of timing for a call, and for its caller
        self._inside_ns, self._outside_ns = self._of_timing()
        for timed in TIMED:
            wrap = self._each_step if timed.iterates else self._one_call
            setattr(timed.owner, timed.method, wrap(timed.what, getattr(timed.owner, timed.method)))

    def begin(self) -> None:
        self._spent_ns.clear()
        self._calls.clear()
        self._within_ns = [0]
        self._since_ns = time.thread_time_ns()

    def end(self) -> dict[str, dict[str, float]]:
        """By name: total microseconds (`us`), and `calls`."""
        self._spent_ns[REST] = time.thread_time_ns() - self._since_ns - self._within_ns[0]
        return {what: {"us": ns / 1e3, "calls": self._calls[what]} for what, ns in self._spent_ns.items()}

    def _one_call(self, what: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            self._within_ns.append(0)
            begun_ns = time.thread_time_ns()
            try:
                return method(*arguments, **named)
            finally:
                took_ns = time.thread_time_ns() - begun_ns
                self._spent_ns[what] += took_ns - self._within_ns.pop() - self._inside_ns
                self._within_ns[-1] += took_ns + self._outside_ns
                self._calls[what] += 1

        return timed

    def _each_step(self, what: str, method: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Iterator[Any]:
            step = self._one_call(what, iter(method(*arguments, **named)).__next__)
            while True:
                try:
                    found = step()
                except StopIteration:
                    return
                yield found

        return timed

    def _of_timing(self) -> tuple[int, int]:
        timed = self._one_call("nothing", int)
        begun_ns = time.thread_time_ns()
        for _ in range(_CALIBRATION):
            timed()
        took_ns = time.thread_time_ns() - begun_ns
        inside_ns = self._spent_ns["nothing"] // _CALIBRATION
        return inside_ns, took_ns // _CALIBRATION - inside_ns


class Tells:
    """Answers each order with the time spent since the one before."""

    running = False

    def __init__(self, cost: LoopCost) -> None:
        self._cost = cost

    def start(self, *_: Any, **order: Any) -> None:
        say(spent=self._cost.end())
        self._cost.begin()


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    ready = make_ready(resolve_model(settings["model"]), load_machine(settings["machine"]))
    cost = LoopCost()
    daemon = Daemon(
        planned(ready, Planning(Settings("", strategy="seed", objective="throughput", batch=1))),
        addresses_of(Settings("", endpoint=settings["endpoint"], metrics="0")),
    )
    orders = Orders(daemon, Tells(cost))
    daemon.run(lambda: say(endpoint=daemon.gateway.endpoint), orders.turn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
