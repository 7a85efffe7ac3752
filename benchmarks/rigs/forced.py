"""A daemon whose plans are set by a client, without a tuner; frames come from inside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.control import set_live
from shisha_rt.client import Client
from shisha_rt.plan.plan import Plan

_DAEMON: Final = "benchmarks.rigs.daemon_process"
_TIMEOUT_S: Final = 240.0
_ATTEMPTS: Final = 4
_WARM_UP_FRAMES: Final = 6


@dataclass(frozen=True, slots=True)
class Forced:
    """A running daemon, and a connection on which plans are set."""

    process: ChildProcess
    control: Client

    def take(self, plan: Plan) -> None:
        set_live(self.control, plan, _ATTEMPTS)

    def burst(self, seconds: float, *, copied: bool = True, warm_up: int = _WARM_UP_FRAMES) -> dict[str, Any]:
        """One frame at a time for `seconds`, see `daemon_process`."""
        return self.process.ask(seconds=seconds, copied=copied, warm_up=warm_up)


@contextlib.contextmanager
def forced(model: str, machine: str, *, precision: str = "exact") -> Iterator[Forced]:
    """Start a daemon with the seed's plan. `model`, `machine`: as `serve` takes them."""
    settings: dict[str, Any] = {"model": model, "machine": machine, "precision": precision}
    settings |= {"endpoint": "tcp://127.0.0.1:0", "planning": {"strategy": "seed", "fresh": True}}
    with (
        child_process(_DAEMON, **settings) as (process, up),
        Client(up["endpoint"], timeout_s=_TIMEOUT_S) as control,
    ):
        yield Forced(process, control)
