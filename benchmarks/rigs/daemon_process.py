"""A daemon in a separate process: `shisha-rt serve`, with a client inside it that sends one frame at a time.

The generator is a client of the shell, as the gateway is, and sends the next frame while it handles an answer. So it
measures the pipeline with the daemon's own work for each frame, without protocol or client. `copied`: each frame's
input is copied into its slot, as the gateway does; otherwise slots keep the input of an earlier frame, and the daemon
moves descriptors only. The first `warm_up` frames of a burst are not counted.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, Protocol

from benchmarks.rigs.child_process import Child, say
from benchmarks.rigs.stage_rig import random_inputs
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.prepare import planned
from shisha_rt.daemon.prepared import Planning
from shisha_rt.daemon.server import Daemon
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.model.zoo import resolve_model
from shisha_rt.protocol.request import InferRequest

_LISTEN_EVERY_S: Final = 0.05


@dataclass(slots=True)
class _Burst:
    """`started_s` and `ends_s` are infinite until the warm-up has ended."""

    seconds: float
    copied: bool
    warm_up: int
    answered: int = 0
    started_s: float = math.inf
    ends_s: float = math.inf
    latencies_s: list[float] = field(default_factory=list)


class Generator:
    """Frames from inside the daemon, in bursts; each ends with a line of its results."""

    def __init__(self, daemon: Daemon, compiled: Compiled) -> None:
        self._shell = daemon.shell
        self._outputs = tuple(tensor.name for tensor in compiled.model.graph.outputs)
        inputs = random_inputs(compiled, seed=0)
        self._tensors = {name: memoryview(array.tobytes()) for name, array in inputs.items()}
        self._ids = map(str, itertools.count())
        self._burst: _Burst | None = None

    @property
    def running(self) -> bool:
        return self._burst is not None

    def start(self, seconds: float, copied: bool, warm_up: int) -> None:
        self._burst = _Burst(seconds, copied, warm_up)
        self._submit(self._burst)

    def _submit(self, burst: _Burst) -> None:
        tensors = dict(self._tensors) if burst.copied else {}
        size_bytes = sum(map(len, tensors.values()))
        request = InferRequest(next(self._ids), "generated", None, None, tensors, self._outputs, size_bytes)
        self._shell.submit("generator", request, self._answered)

    def _answered(self, answer: Ticket) -> None:
        burst = self._burst
        assert burst is not None
        if answer.error is not None:
            raise RuntimeError(f"a generated frame was refused: {answer.message}")
        burst.answered += 1
        now_s = time.monotonic()
        if burst.answered > burst.warm_up:
            burst.latencies_s.append(answer.latency_s)
        if burst.answered == burst.warm_up:
            burst.started_s, burst.ends_s = now_s, now_s + burst.seconds
        if now_s < burst.ends_s:
            self._submit(burst)
            return
        self._burst = None
        say(
            **self._told(),
            frame_s=(now_s - burst.started_s) / len(burst.latencies_s),
            latency_s=median(burst.latencies_s),
        )

    def _told(self) -> dict[str, Any]:
        cores = self._shell.cores
        live = cores.lifecycle.live
        assert live is not None
        epoch, plan = live
        stage_s = [
            [window.median_service_s for window in windows] for windows in self._shell.telemetry.windows(epoch, plan)
        ]
        return {
            "plan": str(plan),
            "stage_s": [min((s for s in times_s if s is not None), default=None) for times_s in stage_s],
            "tuner": cores.tuning.state.value,
        }


class Ordered(Protocol):
    """Something that is started by an order and writes its result itself; one order at a time."""

    @property
    def running(self) -> bool: ...

    def start(self, *_: Any, **order: Any) -> None: ...


class Orders:
    """Orders from standard input, read periodically in the daemon's own loop; the end of input stops the daemon."""

    def __init__(self, daemon: Daemon, ordered: Ordered) -> None:
        os.set_blocking(0, False)
        self._daemon = daemon
        self._ordered = ordered
        self._text = b""
        self._listen_at_s = 0.0

    def turn(self) -> None:
        if self._ordered.running or time.monotonic() < self._listen_at_s:
            return
        self._listen_at_s = time.monotonic() + _LISTEN_EVERY_S
        try:
            data = os.read(0, 4096)
        except BlockingIOError:
            return
        if not data:
            self._daemon.stop()
            self._listen_at_s = float("inf")
        self._text += data
        line, end, rest = self._text.partition(b"\n")
        if end:
            self._text = rest
            self._ordered.start(**json.loads(line))


def child(model: str, machine: str, endpoint: str, planning: dict[str, Any], precision: str = "exact") -> Child:
    asked: dict[str, Any] = {"strategy": "seed", "objective": "throughput", "batch": 1} | planning
    fresh = asked.pop("fresh", False)
    plans = Planning(Settings("", **asked), fresh)
    guided = plans.settings.strategy == "guided"
    ready = make_ready(resolve_model(model), load_machine(machine), precision=precision, teams=guided)
    addresses = addresses_of(Settings("", endpoint=endpoint, metrics="0"))
    daemon = Daemon(planned(ready, plans, layer_costs(ready) if guided else None), addresses)
    orders = Orders(daemon, Generator(daemon, ready.compiled))
    daemon.run(lambda: say(endpoint=daemon.gateway.endpoint), orders.turn)
    yield from ()
