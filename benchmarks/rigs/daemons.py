"""Daemons that a process of ours asks, or whose plans a client sets; and models that are profiled beforehand."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.control import set_live
from shisha_rt.cli.drive.child_daemon import ChildDaemon, child_daemon
from shisha_rt.client import Client
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.plan import Plan

_TIMEOUT_S: Final = 240.0
_ATTEMPTS: Final = 4
_WARM_UP_FRAMES: Final = 6


def profiled(model: str, machine: Machine) -> ModelOnMachine:
    """Prepare a network of the zoo, with all that `serve` would measure first for `--strategy guided`."""
    ready = make_ready(resolve_model(f"zoo:{model}", print), machine, teams=True, on_progress=print)
    layer_costs(ready, print)
    return ready


class Rig(contextlib.ExitStack):
    """The processes of a benchmark and its connections to them, which end with it, the last ones first."""

    def child(self, module: str, **settings: Any) -> ChildProcess:
        """A process of `benchmarks.rigs`, which waits for orders."""
        return self.enter_context(child_process(f"benchmarks.rigs.{module}", **settings))

    def control(self, endpoint: str, model: str | None = None) -> Client:
        return self.enter_context(Client(endpoint, timeout_s=_TIMEOUT_S, model=model))

    def folder(self) -> Path:
        return Path(self.enter_context(tempfile.TemporaryDirectory(prefix="rig-")))

    def daemon(self, model: str, *options: str) -> tuple[ChildDaemon, Client]:
        """A daemon at a socket of its own, and a connection to it. `model`, `options`: as `serve` takes them."""
        endpoint = f"ipc://{self.folder()}/daemon"
        daemon = self.enter_context(child_daemon(model, *options, endpoint=endpoint))
        return daemon, self.control(endpoint)

    def served(self, model: str, *options: str) -> tuple[Client, ChildProcess]:
        """As `daemon`: the connection, and a process that takes the orders of `arrivals_process`."""
        daemon, control = self.daemon(model, *options)
        return control, self.child("arrivals_process", endpoint=daemon.endpoint)


@dataclass(frozen=True, slots=True)
class Forced:
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
        child_process("benchmarks.rigs.daemon_process", **settings) as process,
        Client(process.ready["endpoint"], timeout_s=_TIMEOUT_S) as control,
    ):
        yield Forced(process, control)
