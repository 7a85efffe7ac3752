"""A daemon whose loop is timed: the CPU seconds of its thread in each turn, and the events handled in it.

A turn is what happens between two polls. Waiting costs no CPU time, nor does another process on the core, so a turn's
time is how long the daemon's own work delays other messages.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import os
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.rigs.child_process import Child, say
from benchmarks.rigs.daemon_process import Orders
from shisha_rt.core.tuning.cores import CoreEvent
from shisha_rt.core.tuning.events import PlacerSaid, TunerSaid
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.gateway import Arrived
from shisha_rt.daemon.prepare import planned
from shisha_rt.daemon.prepared import Planning
from shisha_rt.daemon.server import Daemon
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.model.zoo import resolve_model
from shisha_rt.protocol.request import OpRequest

_LONGEST: Final = 40
"""Number of the longest turns whose events are kept."""
Part = tuple[str, float]
"""An event, and the CPU seconds of handling it."""


class Turns:
    """CPU seconds of all turns, also by event; and the events of the longest turns."""

    def __init__(self) -> None:
        self.turns_s = array("d")
        self.by_what: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self.longest: list[tuple[float, int, list[Part]]] = []
        self._parts: list[Part] = []
        self._within_s: list[float] = []  # by depth: the time counted under other names
        self._collecting: contextlib.AbstractContextManager[None] | None = None
        self._since_s = time.thread_time()
        gc.callbacks.append(self._collected)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Context whose CPU time counts under `what`, without that of contexts within it."""
        self._within_s.append(0.0)
        begun_s = time.thread_time()
        try:
            yield
        finally:
            took_s = time.thread_time() - begun_s
            self._parts.append((what, took_s - self._within_s.pop()))
            if self._within_s:
                self._within_s[-1] += took_s

    def end(self) -> None:
        now_s = time.thread_time()
        took_s, parts = now_s - self._since_s, self._parts
        self.turns_s.append(took_s)
        for what, seconds in parts:
            self.by_what[what].append(seconds)
        if len(self.longest) < _LONGEST:
            heapq.heappush(self.longest, (took_s, len(self.turns_s), parts[:]))
        elif took_s > self.longest[0][0]:
            heapq.heapreplace(self.longest, (took_s, len(self.turns_s), parts[:]))
        parts.clear()

    def begin(self) -> None:
        self._since_s = time.thread_time()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Count the interpreter's garbage collection, if it runs in the loop's thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self._collecting = self.doing(f"collection {info['generation']}")
            self._collecting.__enter__()
        elif self._collecting is not None:
            self._collecting.__exit__(None, None, None)
            self._collecting = None


class TimedDaemon(Daemon):
    """`turns` records each event of the loop, and each that the shell passes to the cores."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.measure()
        post = self.shell.post

        def timed(event: CoreEvent, cause: str) -> None:
            with self.turns.doing(type(event).__name__):
                post(event, cause)

        self.shell.post = timed  # type: ignore[method-assign]

    def measure(self) -> None:
        gc.callbacks.clear()
        self.turns = Turns()

    def _take(self, event: object) -> None:
        with self.turns.doing(_name(event)):
            super()._take(event)

    def _look(self, now_s: float) -> None:
        with self.turns.doing("a look at all"):
            super()._look(now_s)


def _name(event: object) -> str:
    match event:
        case Arrived(request=OpRequest(op=op)):
            return f"op {op}"
        case Arrived():
            return "infer"
        case TunerSaid(message=message) | PlacerSaid(message=message):
            return f"{type(event).__name__} {type(message).__name__}"
        case _:
            return type(event).__name__


class Report:
    """Answers each order with the measurements since the one before."""

    running = False

    def __init__(self, daemon: TimedDaemon) -> None:
        self._daemon = daemon

    def start(self, *_: Any, **order: Any) -> None:
        turns = self._daemon.turns
        say(
            turns=figures(turns.turns_s),
            by_what={what: figures(seconds) for what, seconds in turns.by_what.items()},
            longest=[(seconds, _told(parts)) for seconds, _, parts in sorted(turns.longest, reverse=True)],
        )
        self._daemon.measure()


def figures(seconds: Iterable[float]) -> dict[str, float]:
    ascending = sorted(seconds)

    def share(part: float) -> float:
        return ascending[min(len(ascending) - 1, int(part * len(ascending)))]

    return {
        "count": len(ascending),
        "p50": share(0.5),
        "p99": share(0.99),
        "p99.9": share(0.999),
        "largest": ascending[-1],
    }


def _told(parts: list[Part]) -> str:
    """Events in words, the longest first."""
    count: Counter[str] = Counter()
    sum_s: Counter[str] = Counter()
    for what, seconds in parts:
        count[what] += 1
        sum_s[what] += seconds  # type: ignore[assignment]  # a Counter adds up seconds as well
    phrases = (f"{count[what]} {what} {1e3 * seconds:.2f}" for what, seconds in sum_s.most_common(5))
    return ", ".join(phrases)


def child(model: str, machine: str, endpoint: str, keep: str) -> Child:
    ready = make_ready(resolve_model(model), load_machine(machine), teams=True)
    stored = layer_costs(ready)
    os.environ["XDG_CACHE_HOME"] = str(Path(keep).resolve())
    plans = Planning(Settings("", strategy="guided", objective="throughput", batch=1))
    daemon = TimedDaemon(planned(ready, plans, stored), addresses_of(Settings("", endpoint=endpoint, metrics="0")))
    orders = Orders(daemon, Report(daemon))

    def turn() -> None:
        daemon.turns.end()
        orders.turn()
        daemon.turns.begin()

    def begin() -> None:
        say(endpoint=daemon.gateway.endpoint, slots=daemon.shell.cores.lifecycle.frames.slot_count)
        daemon.measure()  # the start does not count, as it delays no messages

    daemon.run(begin, turn)
    yield from ()
