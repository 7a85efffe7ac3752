"""Everything at once, on purpose and at random: `python -m benchmarks campaign`.

A real daemon of the identity network, whose answer is its input, so that an oracle knows each frame's answer: clients
over TCP and with shared memory, in ordered streams, and a client over HTTP, all the time. Meanwhile, by one seed and
one after the other: plans of every kind (chains, copies, teams, branches, shards, batches), places down and up, the
tuner started, paused and told other objectives; any process killed, or stopped until the daemon has noticed; clients
that go away in the midst of a message; deadlines and cancels. Between any two it is asked for its status.

It counts, and ends with 1 if any of the first four is not 0:

- `lost`, `doubled or unasked`, `out of order`, `wrong`: answers that break a promise, as the clients saw them;
- `errors`: frames that were answered with an error, by code: two deaths of workers at one frame are its own;
- `HTTP lost`: requests whose HTTP process was killed while it had them;
- `status ms`: how long it took to answer, median, 99th percentile and most;
- `longest gap s`: between two answers of one client; with a stopped worker that is the patience of the daemon;
- `growth MiB`: of the daemon's private memory, from a minute after the start on (or the first fifth);
- `left`: processes and files of the daemon after its end.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import numpy as np
import psutil
import typer
import zmq

from benchmarks.live.load_figures import percentile
from benchmarks.report.facts import facts
from benchmarks.report.progress import Progress
from benchmarks.report.results import Row, save_csv, show
from shisha_rt.client import Client, ShishaError
from shisha_rt.measure.compile import compile_model
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import DaemonProcess, leftovers, machine_file
from tests.serving.identity_model import NAME, SHAPE, frame_of, write_identity_model
from tests.serving.load import Load
from tests.serving.random_plans import Cuttable

PLACES: Final = ("a", "b", "c", "d")
MOST_BATCH: Final = 4
_DEATHS_APART_S: Final = 6.0
"""Workers of one place may die five times in 30 s before it is left out of planning, which would end the campaign."""
_STOPPED_S: Final = 60.0
_WITHIN_S: Final = 60.0


class _HttpLoad(threading.Thread):
    """One frame after the other over HTTP; a request whose connection breaks is lost, and counted."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.answered = self.lost = self.wrong = 0
        self.codes: Counter[int] = Counter()
        self._url = urlsplit(url)
        self._ending = threading.Event()

    def run(self) -> None:
        number = 1
        size = int(np.prod(SHAPE)) * 4
        header = (
            f'{{"inputs":[{{"name":"x","shape":{list(SHAPE)},"datatype":"FP32","parameters":{{"binary_data_size":{size}}}}}],'
            '"outputs":[{"name":"y","parameters":{"binary_data":true}}]}'
        ).encode()
        while not self._ending.is_set():
            number += 2
            frame = frame_of(number).tobytes()
            try:
                connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=_WITHIN_S)
                length = {"Inference-Header-Content-Length": str(len(header))}
                connection.request("POST", f"/v2/models/{NAME}/infer", header + frame, length)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                self.lost += 1
                time.sleep(0.2)
                continue
            finally:
                connection.close()
            self.codes[answer.status] += 1
            if answer.status == 200:
                self.answered += 1
                self.wrong += not body.endswith(frame)

    def finish(self) -> None:
        self._ending.set()
        self.join(_WITHIN_S)


class _Campaign:
    """What is done to the daemon, and what comes of it."""

    def __init__(self, daemon: DaemonProcess, cuttable: Cuttable, rng: random.Random) -> None:
        self.daemon = daemon
        self.done: Counter[str] = Counter()
        self.status_s: list[float] = []
        self.private_bytes: list[tuple[float, int]] = []
        self._cuttable = cuttable
        self._rng = rng
        self._died_s = dict.fromkeys(PLACES, 0.0)
        self._down: str | None = None
        acts: dict[Callable[[], None], int] = {
            self.plan: 40,
            self.kill_worker: 8,
            self.stop_worker: 1,
            self.kill_child: 3,
            self.place: 6,
            self.tuner: 4,
            self.vanish: 6,
            self.late_and_cancelled: 6,
        }
        self._acts, self._weights = [*acts], [*acts.values()]

    def step(self) -> None:
        (act,) = self._rng.choices(self._acts, self._weights)
        act()
        begun_s = time.monotonic()
        self.daemon.control.status()
        self.status_s.append(time.monotonic() - begun_s)
        private = psutil.Process(self.daemon.pid).memory_full_info().uss
        self.private_bytes.append((time.monotonic(), private))
        time.sleep(self._rng.uniform(0, 0.1))

    def plan(self) -> None:
        """A plan of any kind, live or not: a place that is down, or a worker that dies meanwhile, may be in its way."""
        rng = self._rng
        if rng.random() < 0.2:
            plan = self._cuttable.random_split_plan(rng, PLACES)
        else:
            plan = self._cuttable.random_plan(rng, PLACES)
        if rng.random() < 0.5 and not any(stage.split for stage in plan.stages):
            plan = Plan(tuple(replace(stage, batch=rng.randint(1, MOST_BATCH)) for stage in plan.stages))
        self.done[f"plans, {self.daemon.control.set_plan(plan)['outcome']}"] += 1

    def kill_worker(self) -> None:
        self._end_worker(signal.SIGKILL, "workers killed")

    def stop_worker(self) -> None:
        """It is found out by its silence, and killed."""
        self._end_worker(signal.SIGSTOP, "workers stopped")

    def _end_worker(self, number: int, what: str) -> None:
        pids = {name: pid for name, pid in self.daemon.worker_pids().items() if pid is not None}
        now_s = time.monotonic()
        able = [name for name in pids if now_s - self._died_s[name] > _DEATHS_APART_S]
        if able:
            name = self._rng.choice(able)
            self._died_s[name] = now_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[name], number)
            self.done[what] += 1

    def kill_child(self) -> None:
        """Tuner, HTTP, or whatever else works for the daemon at this moment; now and then it is stopped instead."""
        workers = set(self.daemon.worker_pids().values())
        children = [child for child in psutil.Process(self.daemon.pid).children() if child.pid not in workers]
        if children:
            child = self._rng.choice(children)
            stops = self._rng.random() < 0.1
            with contextlib.suppress(psutil.NoSuchProcess):
                module = next((part for part in child.cmdline() if part.startswith("shisha_rt.")), "another process")
                child.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
                what = ".".join(module.split(".")[-2:])
                self.done[f"{what} {'stopped' if stops else 'killed'}"] += 1

    def place(self) -> None:
        """One place at a time is down."""
        name = self._down or self._rng.choice(PLACES)
        change = {"up": True} if self._down else {"down": True}
        with contextlib.suppress(ShishaError):  # it is the last one that is there
            self.daemon.control.call("place_set", place=name, timeout_s=_WITHIN_S, **change)
            self._down = None if self._down else name
            self.done["places down or up"] += 1

    def tuner(self) -> None:
        change: dict[str, Any] = self._rng.choice(
            (
                {"resume": True},
                {"pause": True},
                {"restart": True},
                {"objective": "latency"},
                {"objective": "throughput"},
            )
        )
        with contextlib.suppress(ShishaError):  # nothing is known yet to search by
            self.daemon.control.call("tuner_set", **change)
        self.done["tuner told"] += 1

    def vanish(self) -> None:
        """A client that ends in the midst of what it sends: of a message, or of frames that nobody will hear of."""
        if self._rng.random() < 0.5:
            address = urlsplit(self.daemon.endpoint)
            with socket.create_connection((address.hostname or "", address.port or 0), timeout=_WITHIN_S) as connection:
                connection.sendall(bytes(self._rng.choices(range(256), k=self._rng.randint(1, 200))))
        else:
            with Client(self.daemon.endpoint, timeout_s=_WITHIN_S) as client:
                stream = client.stream(in_flight=8).run(frame_of(number) for number in range(100))
                next(stream)
        self.done["clients that vanished"] += 1

    def late_and_cancelled(self) -> None:
        with Client(self.daemon.endpoint, timeout_s=_WITHIN_S) as client:
            with client.stream(in_flight=8, deadline_s=self._rng.uniform(0, 0.2)) as stream:
                outcomes = list(stream.run((frame_of(number) for number in range(30)), errors="return"))
            late = sum(isinstance(outcome, ShishaError) for outcome in outcomes)
            self.done["frames with a deadline, in time"] += len(outcomes) - late
            self.done["frames with a deadline, late"] += late

    @property
    def growth_bytes(self) -> int:
        """Private memory at the end over that a minute after the start, or after a fifth; medians of some."""
        begun_s, ended_s = self.private_bytes[0][0], self.private_bytes[-1][0]
        from_s = begun_s + min(60.0, (ended_s - begun_s) / 5)
        later = [size for at_s, size in self.private_bytes if at_s >= from_s]
        part = max(1, len(later) // 20)
        return int(np.median(later[-part:]) - np.median(later[:part]))


def campaign(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of the random generator.")] = 0,
) -> None:
    """Plans, kills, stops and vanishing clients at random, held against an oracle; status 1 if a promise is broken."""
    rng, progress = random.Random(seed), Progress("campaign")
    about = facts(f"campaign --minutes {minutes:g} --seed {seed}")
    with tempfile.TemporaryDirectory(prefix="campaign-") as name:
        folder = Path(name)
        model = write_identity_model(folder)
        compiled = compile_model(model)
        index = compiled.index
        cuttable = Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs, index.splits)
        options = ("--strategy", "guided", "--batch", MOST_BATCH, "--http", "127.0.0.1:0")
        begun_s = time.monotonic()
        with DaemonProcess(folder, model, "--machine", machine_file(folder, PLACES), *options) as daemon:
            daemon.wait_for_workers()
            going = _Campaign(daemon, cuttable, rng)
            path = daemon.control.metadata()["server"]["shared_memory_socket"]
            loads = [
                Load(daemon.endpoint, 0, streams=3, depth=3),
                Load(daemon.endpoint, 1, streams=3, depth=3, sharing=path),
                Load(daemon.endpoint, 2, streams=1, depth=1),
            ]
            over_http = _HttpLoad(daemon.http[0])
            for each in (*loads, over_http):
                each.start()
            while time.monotonic() < begun_s + 60 * minutes:
                going.step()
                progress.glance(
                    f"{sum(load.answered for load in loads)} frames, {going.done.total()} changes and faults"
                )
            over_http.finish()
            for load in loads:
                load.finish()
        left = len(leftovers(daemon.runtime)) + len(daemon.processes())
    progress.done()
    zmq.Context.instance().term()
    rows = _rows(going, loads, over_http, left, time.monotonic() - begun_s)
    save_csv("campaign", rows, about)
    show("Campaign", rows)
    broken = [fault for load in loads for fault in load.faults]
    for fault in broken[:20]:
        print(f"campaign: {fault}", file=sys.stderr)
    if broken or over_http.wrong or left or any(load.sent != load.answered for load in loads):
        raise typer.Exit(1)


def _rows(going: _Campaign, loads: list[Load], over_http: _HttpLoad, left: int, seconds: float) -> list[Row]:
    faults = [fault for load in loads for fault in load.faults]
    wrong = [fault for fault in faults if "a wrong answer" in fault or "sequence" in fault]
    unordered = [fault for fault in faults if "was answered before" in fault]
    unasked = [fault for fault in faults if "an answer to nothing" in fault]
    codes = sum((load.codes for load in loads), Counter[str]())
    figures: dict[str, object] = {
        "seconds": seconds,
        "frames over ZeroMQ": sum(load.answered for load in loads),
        "frames over HTTP": over_http.answered,
        "lost": sum(load.sent - load.answered for load in loads),
        "doubled or unasked": len(unasked),
        "out of order": len(unordered),
        "wrong": len(wrong) + over_http.wrong,
        "other faults": len(faults) - len(wrong) - len(unordered) - len(unasked),
        **{f"errors, {code}": count for code, count in sorted(codes.items())},
        "HTTP lost": over_http.lost,
        **{f"HTTP status {status}": count for status, count in sorted(over_http.codes.items()) if status != 200},
        **dict(sorted(going.done.items())),
        "status ms, median": 1e3 * percentile(going.status_s, 50),
        "status ms, 99th percentile": 1e3 * percentile(going.status_s, 99),
        "status ms, most": 1e3 * max(going.status_s),
        "longest gap s": max(load.longest_gap_s for load in loads),
        "growth MiB": going.growth_bytes / 2**20,
        "left": left,
    }
    return [{"what": what, "count": figure} for what, figure in figures.items()]
