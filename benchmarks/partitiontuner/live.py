"""Schemes executed by daemons: what a frame takes that meets no other, in the time of the board.

All schemes of a network have a daemon each, as a user starts it; frames go to one after the other, in turns. The tuner
is paused before the first frame, so that the plan is that of the costs told.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from benchmarks.partitiontuner.cases import PERMITTED, Planned
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client, ShishaError, plan_of
from shisha_rt.errors import Failure
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s

NOT_RUN: Final = (Failure, ShishaError, RuntimeError)
"""Raised where a daemon does not come up, does not answer, or runs another plan."""
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of the board for each frame: from its receipt to its answer in the daemon, and as the client sees it.

    `stages_s`: what its stages take by themselves, one after the other or side by side, as the plan has them.
    """

    daemon_s: tuple[float, ...]
    client_s: tuple[float, ...]
    stages_s: float

    @property
    def latency_s(self) -> float:
        return median(self.daemon_s)

    @property
    def handover_s(self) -> float:
        """What a frame takes beyond its stages."""
        return self.latency_s - self.stages_s


@dataclass(slots=True)
class Asked:
    """A daemon that is sent one frame at a time. `scale`: by how much its machine's time is stretched here."""

    client: Client
    plan: Plan
    scale: float
    frame: Mapping[str, Any]
    daemon_s: list[float] = field(default_factory=list)
    client_s: list[float] = field(default_factory=list)

    def send(self) -> None:
        before_ns = self._answered_ns()
        start_s = time.perf_counter()
        self.client.infer(self.frame)
        self.client_s.append((time.perf_counter() - start_s) / self.scale)
        self.daemon_s.append((self._answered_ns() - before_ns) / 1e9 / self.scale)

    def forget(self) -> None:
        """What was sent so far was to warm up."""
        self.daemon_s.clear()
        self.client_s.clear()

    def measured(self) -> Measured:
        """Of all frames since. Raises RuntimeError where another plan than the one wanted has run."""
        status = self.client.status()
        live = plan_of(self.client.plan()["stages"])
        if live != self.plan:
            raise RuntimeError(f"the daemon runs {live}, expected {self.plan}")
        service_s = [stage["service_s"] for stage in status["plan"]["stages"]]
        stages_s = latency_s(live, [(s,) for s in service_s])
        return Measured(tuple(self.daemon_s), tuple(self.client_s), stages_s)

    def _answered_ns(self) -> int:
        """Of all frames until now, from receipt to answer."""
        stats = self.client.call("model_statistics")["model_stats"][0]["inference_stats"]
        return int(stats["success"]["ns"])


@contextlib.contextmanager
def asked(model: str, machine: str, strategy: Sequence[str]) -> Iterator[Asked]:
    """A daemon, its tuner paused if there is one. Raises Failure where it does not come up."""
    options = ("--machine", machine, "--precision", PERMITTED, "--fresh", *strategy)
    with child_daemon(model, *options) as daemon, Client(daemon.endpoint, timeout_s=_PATIENCE_S) as client:
        status = client.status()
        if status["tuner"]["state"] != "off":
            client.call("tuner_set", pause=True)
        (frame,) = random_frames(model_inputs(client.metadata()["model"]), 1, seed=0)
        plan = plan_of(client.plan()["stages"])
        yield Asked(client, plan, status["machine"]["time_scale"], frame)


def executed(plans: Sequence[Planned], machine: str, rounds: int, frames: int) -> dict[str, Measured]:
    """By scheme; what does not run is said, and left out. `plans` are all of one case."""
    with contextlib.ExitStack() as closing:
        sides: dict[str, Asked] = {}
        for its in plans:
            with _said(its):
                side = closing.enter_context(asked(str(its.case.path), machine, ("--strategy", its.scheme)))
                side.plan = its.found.plan
                side.send()
                side.forget()
                sides[its.scheme] = side
        for number in range(rounds):
            print(f"  round {number + 1} of {rounds}", flush=True)
            for its in plans:
                if its.scheme in sides:
                    with _said(its, sides):
                        for _ in range(frames):
                            sides[its.scheme].send()
        found: dict[str, Measured] = {}
        for its in plans:
            if its.scheme in sides:
                with _said(its):
                    found[its.scheme] = sides[its.scheme].measured()
        return found


@contextlib.contextmanager
def _said(its: Planned, sides: dict[str, Asked] | None = None) -> Iterator[None]:
    """One scheme that fails does not end the others."""
    try:
        yield
    except NOT_RUN as error:
        print(f"  {its.case}, {its.scheme}: left out: {error}", flush=True)
        if sides is not None:
            del sides[its.scheme]
