"""Schemes executed by daemons: unloaded latency, in the board's time.

Each scheme of a network has a daemon, as a user starts it; frames go to one after the other, in turns. The tuner is
paused before the first frame, so the plan is that by stored costs.
"""

from __future__ import annotations

import contextlib
import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.partitiontuner.cases import PERMITTED, Measured, Planned
from benchmarks.rigs.control import live_plan
from benchmarks.rigs.daemons import Rig
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client, ShishaError
from shisha_rt.errors import Failure
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s

NOT_RUN: Final = (Failure, ShishaError, RuntimeError)
"""Raised if a daemon does not start, does not answer, or runs another plan."""
_PATIENCE_S: Final = 120.0
_SERVICE: Final = re.compile(r'^shisha_stage_service_seconds_sum\{place="[^"]*",stage="(\d+)"\} (\S+)$', re.MULTILINE)


@dataclass(slots=True)
class Asked:
    """A daemon that gets one frame at a time. `plan`: the one that it is to run. `scale`: the machine's `time_scale`.

    `metrics`: address of its metrics, which include times of stages. `sent`: figures of each frame, as in `Measured`.
    """

    client: Client
    metrics: str
    plan: Plan
    scale: float
    frame: Mapping[str, Any]
    sent: list[tuple[float, float, float]] = field(default_factory=list)

    def send(self) -> None:
        before_ns, before_s = self._answered_ns(), self._service_s()
        start_s = time.perf_counter()
        self.client.infer(self.frame)
        client_s = (time.perf_counter() - start_s) / self.scale
        daemon_s = (self._answered_ns() - before_ns) / 1e9 / self.scale
        after_s = self._service_s()
        taken_s = [after_s[index] - before_s[index] for index in range(len(self.plan.stages))]
        self.sent.append((daemon_s, client_s, latency_s(self.plan, [(s,) for s in taken_s])))

    def measured(self) -> Measured:
        """Figures of all frames but the first, which is for warming up.

        Raises RuntimeError if another plan than the wanted one has run.
        """
        live = live_plan(self.client)
        if live != self.plan:
            raise RuntimeError(f"the daemon runs {live}, expected {self.plan}")
        return Measured(*zip(*self.sent[1:], strict=True))

    def _answered_ns(self) -> int:
        """Total time of all frames until now, from receipt to answer."""
        stats = self.client.call("model_statistics")["model_stats"][0]["inference_stats"]
        return int(stats["success"]["ns"])

    def _service_s(self) -> defaultdict[int, float]:
        """By stage: the board's total seconds of all frames until now, on any place."""
        with urllib.request.urlopen(self.metrics, timeout=_PATIENCE_S) as page:
            text = page.read().decode()
        totals_s: defaultdict[int, float] = defaultdict(float)
        for stage, seconds in _SERVICE.findall(text):
            totals_s[int(stage)] += float(seconds)
        return totals_s


def asked(rig: Rig, planned: Planned, machine: str) -> Asked:
    """Start a daemon, with its tuner paused if there is one. Raises Failure if it does not start."""
    options = ("--machine", machine, "--precision", PERMITTED, "--fresh", "--strategy", planned.scheme)
    daemon, client = rig.daemon(str(planned.case.path), *options)
    status = client.status()
    if status["tuner"]["state"] != "off":
        client.call("tuner_set", pause=True)
    (frame,) = random_frames(model_inputs(client.metadata()["model"]), 1, seed=0)
    return Asked(client, daemon.metrics, planned.scheme_plan.plan, status["machine"]["time_scale"], frame)


def executed(plans: Sequence[Planned], machine: str, rounds: int) -> dict[str, Measured]:
    """Results by scheme; a scheme that does not run is reported and left out. `plans`: all of one case."""
    with Rig() as rig:
        sides: dict[str, Asked] = {}
        for planned in plans:
            with _failure_reported(planned):
                side = asked(rig, planned, machine)
                side.send()
                sides[planned.scheme] = side
        for number in range(rounds):
            print(f"  round {number + 1} of {rounds}", flush=True)
            for planned in plans:
                if planned.scheme in sides:
                    with _failure_reported(planned, sides):
                        sides[planned.scheme].send()
        by_scheme: dict[str, Measured] = {}
        for planned in plans:
            if planned.scheme in sides:
                with _failure_reported(planned):
                    by_scheme[planned.scheme] = sides[planned.scheme].measured()
        return by_scheme


@contextlib.contextmanager
def _failure_reported(planned: Planned, sides: dict[str, Asked] | None = None) -> Iterator[None]:
    """Report a scheme that fails, so that the others go on."""
    try:
        yield
    except NOT_RUN as error:
        print(f"  {planned.case}, {planned.scheme}: left out: {error}", flush=True)
        if sides is not None:
            del sides[planned.scheme]
