"""A daemon and its client, each in a separate process, and their times per frame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.cpu_time import cpu_time
from shisha_rt.client import Client
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan

IN_FLIGHT: Final = 8
"""Frames that a client keeps in flight: a daemon on two places has six slots, and two frames wait or are in transit."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One side in one round. CPU times are per frame; None if the side has no such process."""

    frame_s: float
    loop_cpu_s: float | None = None
    other_cpu_s: float | None = None
    client_cpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A daemon and its client."""

    daemon: ChildProcess
    client: ChildProcess
    endpoint: str
    slots: int

    def stream(self, seconds: float) -> Reading:
        before = cpu_time(self.daemon.pid)
        burst = self.client.ask(seconds=seconds)
        used = cpu_time(self.daemon.pid).since(before)
        frames = burst["total_frames"]
        return Reading(burst["frame_s"], used.main_s / frames, used.rest_s / frames, burst["cpu_s"])

    def generate(self, seconds: float, *, copied: bool) -> Reading:
        burst = self.daemon.ask(seconds=seconds, copied=copied)
        return Reading(burst["frame_s"], burst["loop_cpu_s"], burst["cpu_s"] - burst["loop_cpu_s"])

    def take(self, plan: Plan) -> None:
        with Client(self.endpoint) as client:
            settled = client.set_plan(plan)
        if settled["outcome"] != "live":
            raise RuntimeError(f"{plan} is {settled['outcome']}: {settled['reason']}")


@contextlib.contextmanager
def served(model: str, machine: str, endpoint: str, in_flight: int) -> Iterator[Served]:
    """Start a daemon, and a client that waits for orders."""
    with contextlib.ExitStack() as closing:
        daemon, up = closing.enter_context(
            child_process("benchmarks.rigs.daemon_process", model=model, machine=machine, endpoint=endpoint)
        )
        client, _ = closing.enter_context(
            child_process("benchmarks.rigs.client_process", endpoint=up["endpoint"], in_flight=in_flight)
        )
        yield Served(daemon, client, up["endpoint"], up["slots"])


def two_places(machine: str) -> Machine:
    """A machine with the two places that a pipeline of two stages needs. Raises `BadInput`."""
    found = load_machine(machine)
    if len(found.places) < 2:
        raise BadInput(f"{machine}: {len(found.places)} place; expected at least 2, each with a core of its own")
    return found
