"""Random actions of every kind on a daemon under load: `python -m benchmarks campaign`.

A real daemon of the identity network, whose output is its input, so that each frame's answer is known. Clients send
frames all the time: over TCP (or `--ipc`) and over direct lines, with shared memory and without, in ordered streams;
one over HTTP and one over gRPC.
Meanwhile, by one seed and one after the other: plans of every kind (chains, copies, teams, branches, shards, batches);
places taken down, brought up and slowed; the tuner started, paused and given other objectives; any process killed, or
stopped until the daemon has noticed, workers also deliberately while they compute, and while a plan is prepared and
goes live; clients that end in the middle of a message; deadlines and cancellations; with `--clock` the host's clock set
forward and back. After each action the status is requested.

Reported are the following; the exit status is 1 if any of the first five is not 0:

- `lost`, `doubled or unasked`, `out of order`, `wrong`, `of no epoch`: broken promises, as seen by clients;
- `errors`: frames answered with an error, by code; a frame at which two workers died gets an error of its own;
- `HTTP lost`, `gRPC lost`: requests in a killed front process, or that came before another one had started;
- `status ms`: time of a status request, median, 99th percentile and maximum, with the action just before;
- `longest gap s`: between two answers of one client; with a stopped worker it is the daemon's time-out;
- `growth MiB`: of the daemon's private memory, from a minute after the start (or the first fifth), and at quarters; the
  daemon keeps the last 10,000 of its `events`;
- `descriptors`: open files of the daemon after that minute and at the end, medians;
- `left`: processes and files of the daemon after its end.
"""

from __future__ import annotations

import contextlib
import itertools
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import numpy as np
import psutil
import tritonclient.grpc as triton
import typer
import zmq

from benchmarks.report.report import Report
from benchmarks.report.results import Row, listed, number, percentile
from benchmarks.rigs.http_asking import Address, HttpClients
from shisha_rt.client import Client, ShishaError
from shisha_rt.measure.compile import compile_model
from shisha_rt.plan.plan import MOST_BATCH, Plan
from tests.serving.daemon_process import DaemonProcess, leftovers, machine_file
from tests.serving.identity_model import NAME, SHAPE, frame_of, write_identity_model
from tests.serving.load import Load
from tests.serving.random_plans import Cuttable

PLACES: Final = ("a", "b", "c", "d")
_DEATHS_APART_S: Final = 6.0
"""Time between deaths at one place: after five deaths in 30 s a place is given up, which would end the campaign."""
_PREPARED_WITHIN_S: Final = 0.15
"""A plan of the identity network is prepared, and live, within about this time."""
_CLOCK_STEP_S: Final = 100
_WITHIN_S: Final = 60.0


class _GrpcLoad(threading.Thread):
    """One frame after the other by gRPC, with the protocol's stock client; `lost`: requests whose connection broke."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.answered = self.lost = self.wrong = 0
        self.codes: Counter[str] = Counter()
        self._address = address
        self._ending = threading.Event()

    def finish(self) -> None:
        self._ending.set()
        self.join(_WITHIN_S)

    def run(self) -> None:
        number = 1
        with triton.InferenceServerClient(self._address) as client:
            asked = triton.InferInput("x", list(SHAPE), "FP32")
            while not self._ending.is_set():
                number += 2
                frame = frame_of(number)
                asked.set_data_from_numpy(frame)
                try:
                    answer = client.infer(NAME, [asked], client_timeout=_WITHIN_S).as_numpy("y")
                except triton.InferenceServerException as error:
                    code = (error.status() or "").rpartition(".")[2]
                    if code == "UNAVAILABLE":  # nobody there, or the connection broke
                        self.lost += 1
                        time.sleep(0.2)
                    else:
                        self.codes[code] += 1
                    continue
                self.answered += 1
                self.wrong += answer is None or answer.tobytes() != frame.tobytes()


class _Campaign:
    def __init__(
        self, daemon: DaemonProcess, cuttable: Cuttable, rng: random.Random, *, batch: int, clock: bool
    ) -> None:
        self.daemon = daemon
        self.done: Counter[str] = Counter()
        self.faults = 0
        self.epoch = 0
        self.events = 0
        self.status_s: list[tuple[float, str]] = []
        self.private_bytes: list[tuple[float, int]] = []
        self.descriptors: list[tuple[float, int]] = []
        self._board = daemon.board(len(PLACES))
        self._cuttable = cuttable
        self._batch = batch
        self._rng = rng
        self._died_s = dict.fromkeys(PLACES, 0.0)
        self._down: str | None = None
        acts: dict[Callable[[], None], int] = {
            self.plan: 40,
            self.kill_worker: 4,
            self.kill_at_work: 8,
            self.kill_amid_plan: 8,
            self.stop_worker: 2,
            self.kill_child: 6,
            self.place: 5,
            self.slow: 3,
            self.tuner: 4,
            self.vanish: 6,
            self.late_and_cancelled: 6,
            **({self.step_clock: 4} if clock else {}),
        }
        self._acts, self._weights = [*acts], [*acts.values()]

    def step(self) -> None:
        (act,) = self._rng.choices(self._acts, self._weights)
        act()
        begun_s = time.monotonic()
        status = self.daemon.control.status()
        self.status_s.append((time.monotonic() - begun_s, act.__name__))
        self.epoch, self.events = status["plan"]["epoch"], status["next_event"]
        process = psutil.Process(self.daemon.pid)
        self.private_bytes.append((time.monotonic(), process.memory_full_info().uss))
        self.descriptors.append((time.monotonic(), process.num_fds()))
        time.sleep(self._rng.uniform(0, 0.1))

    def plan(self) -> None:
        """Set a plan of any kind; it may fail because a place is down or a worker dies."""
        self._propose(self._random_plan())

    def _propose(self, plan: Plan) -> None:
        self.done[f"plans, {self.daemon.control.set_plan(plan)['outcome']}"] += 1

    def _random_plan(self) -> Plan:
        rng = self._rng
        if rng.random() < 0.2:
            plan = self._cuttable.random_split_plan(rng, PLACES)
        else:
            plan = self._cuttable.random_plan(rng, PLACES)
        if rng.random() < 0.5 and not any(stage.split for stage in plan.stages):
            plan = Plan(tuple(replace(stage, batch=rng.randint(1, self._batch)) for stage in plan.stages))
        return plan

    def kill_worker(self) -> None:
        self._end_worker(signal.SIGKILL, "workers killed at any moment")

    def stop_worker(self) -> None:
        """Stop a worker, which the daemon notices by its missing heartbeat, and kills."""
        self._end_worker(signal.SIGSTOP, "workers stopped")

    def kill_at_work(self) -> None:
        """Kill a worker while it computes a frame, or just as it replies."""

        def is_reached(place: str) -> bool:
            end_s = time.monotonic() + 0.2
            while self._board.running(PLACES.index(place)) is None:
                if time.monotonic() > end_s:
                    return False  # nothing of the live plan is there
            time.sleep(self._rng.choice((0, self._rng.uniform(0, 0.002))))
            return True

        self._end_worker(signal.SIGKILL, "workers killed at work", is_reached)

    def kill_amid_plan(self) -> None:
        """Kill a worker while stages are prepared, or as the plan goes live."""
        with ThreadPoolExecutor(1) as pool:
            outcome = pool.submit(self._propose, self._random_plan())
            time.sleep(self._rng.uniform(0, _PREPARED_WITHIN_S))
            self._end_worker(signal.SIGKILL, "workers killed amid a plan")
            outcome.result()

    def _end_worker(self, number: int, what: str, is_reached: Callable[[str], bool] = lambda _: True) -> None:
        with Client(self.daemon.endpoint, timeout_s=_WITHIN_S) as client:  # the other may wait for a plan
            pids = {place["name"]: place["pid"] for place in client.status()["places"] if place["pid"] is not None}
        now_s = time.monotonic()
        able = [name for name in pids if now_s - self._died_s[name] > _DEATHS_APART_S]
        if able and is_reached(name := self._rng.choice(able)):
            self._died_s[name] = now_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[name], number)
            self.done[what] += 1
            self.faults += 1

    def kill_child(self) -> None:
        """Kill the tuner, the HTTP process, or any other child of the daemon; sometimes stop it instead."""
        workers = set(self.daemon.worker_pids().values())
        descendants = psutil.Process(self.daemon.pid).children(recursive=True)
        children = [child for child in descendants if child.pid not in workers]
        if children:
            child = self._rng.choice(children)
            stops = self._rng.random() < 0.1
            with contextlib.suppress(psutil.NoSuchProcess):
                module = next((part for part in child.cmdline() if part.startswith("shisha_rt.")), "another process")
                child.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
                what = ".".join(module.split(".")[-2:])
                self.done[f"{what} {'stopped' if stops else 'killed'}"] += 1
                self.faults += 1

    def place(self) -> None:
        """Take a place down or bring it up; one place at a time is down."""
        name = self._down or self._rng.choice(PLACES)
        change = {"up": True} if self._down else {"down": True}
        with contextlib.suppress(ShishaError):  # it is the last one that is there
            self.daemon.control.call("place_set", place=name, timeout_s=_WITHIN_S, **change)
            self._down = None if self._down else name
            self.done["places down or up"] += 1

    def slow(self) -> None:
        """Change the speed of a place, if its core has room for it."""
        name, speed = self._rng.choice(PLACES), self._rng.choice((1.0, 1.0, 0.5, 0.2))
        with contextlib.suppress(ShishaError):
            self.daemon.control.call("place_set", place=name, speed=speed)
            self.done["places slowed, or fast again"] += 1

    def step_clock(self) -> None:
        """Change the host's clock for a moment; monotonic time is not affected."""
        step_s = self._rng.choice((-_CLOCK_STEP_S, _CLOCK_STEP_S))
        time.clock_settime(time.CLOCK_REALTIME, time.time() + step_s)
        try:
            time.sleep(self._rng.uniform(0, 0.5))
        finally:
            time.clock_settime(time.CLOCK_REALTIME, time.time() - step_s)
        self.done["clock set forth or back"] += 1

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
        """End a client in the middle of a message, or with frames in flight."""
        if self._rng.random() < 0.5:
            with self._connected() as connection:
                connection.sendall(bytes(self._rng.choices(range(256), k=self._rng.randint(1, 200))))
        else:
            with Client(self.daemon.endpoint, timeout_s=_WITHIN_S) as client:
                stream = client.stream(in_flight=8).run(frame_of(number) for number in range(100))
                next(stream)
        self.done["clients that vanished"] += 1

    def _connected(self) -> socket.socket:
        address = urlsplit(self.daemon.endpoint)
        if address.scheme == "ipc":
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(address.path)
            return connection
        return socket.create_connection((address.hostname or "", address.port or 0), timeout=_WITHIN_S)

    def late_and_cancelled(self) -> None:
        """Send frames with a deadline; sometimes leave their stream early, which cancels those in flight."""
        with Client(self.daemon.endpoint, timeout_s=_WITHIN_S) as client:
            with client.stream(in_flight=8, deadline_s=self._rng.uniform(0, 0.2)) as stream:
                answers = stream.run((frame_of(number) for number in range(30)), errors="return")
                outcomes = list(itertools.islice(answers, self._rng.choice((None, self._rng.randrange(30)))))
            late = sum(isinstance(outcome, ShishaError) for outcome in outcomes)
            self.done["frames with a deadline, in time"] += len(outcomes) - late
            self.done["frames with a deadline, late"] += late
            self.done["streams cancelled amid their frames"] += len(outcomes) < 30


def campaign(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of the random generator.")] = 0,
    batch: Annotated[int, typer.Option(min=1, max=MOST_BATCH, help="The most frames that share a run.")] = 4,
    ipc: Annotated[bool, typer.Option("--ipc", help="ZeroMQ's clients over ipc in place of TCP.")] = False,
    clock: Annotated[
        bool, typer.Option("--clock", help="Set the host's clock forth and back, too: wants root.")
    ] = False,
) -> None:
    """Plans, kills, stops and vanishing clients at random, held against an oracle; status 1 if a promise is broken."""
    rng, report = random.Random(seed), Report("campaign")
    with tempfile.TemporaryDirectory(prefix="campaign-") as name:
        folder = Path(name)
        model = write_identity_model(folder)
        compiled = compile_model(model)
        index = compiled.index
        cuttable = Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs, index.splits)
        options = ("--strategy", "guided", "--batch", batch, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        endpoint = f"ipc://{folder}/daemon" if ipc else "tcp://127.0.0.1:0"
        begun_s = time.monotonic()
        machine = machine_file(folder, PLACES)
        with DaemonProcess(folder, model, "--machine", machine, *options, endpoint=endpoint, is_program=True) as daemon:
            daemon.wait_for_workers()
            going = _Campaign(daemon, cuttable, rng, batch=batch, clock=clock)
            path = daemon.local_socket
            loads = [
                Load(daemon.endpoint, 0, streams=3, depth=3),
                Load(daemon.endpoint, 1, streams=3, depth=3, sharing=path),
                Load(daemon.endpoint, 2, streams=1, depth=1),
                Load(daemon.endpoint, 3, streams=3, depth=3, line=path),
                Load(daemon.endpoint, 4, streams=3, depth=3, line=path, sharing=path),
            ]
            address = Address.of_model(urlsplit(daemon.http[0]).port or 0, NAME, SHAPE)
            http, grpc = HttpClients(address, SHAPE, 1), _GrpcLoad(daemon.grpc[0])
            clients: list[Load | HttpClients | _GrpcLoad] = [http, grpc, *loads]
            for each in clients:
                each.start()
            while time.monotonic() < begun_s + 60 * minutes:
                going.step()
                frames = sum(load.answered for load in loads)
                report.glance(f"{frames} frames, {going.faults} kills and stops, {going.epoch} plans")
            for each in clients:
                each.finish()
            going.epoch = daemon.control.status()["plan"]["epoch"]  # the tuner may have gone on meanwhile
            rows = _rows(going, loads, http, grpc, time.monotonic() - begun_s)
            report.save(rows, file_of(minutes, ipc=ipc, clock=clock))  # also if something is left, which raises
        left = len(leftovers(daemon.runtime)) + len(daemon.processes())
    zmq.Context.instance().term()
    rows += [{"what": "left", "count": left}]
    report.save(rows, file_of(minutes, ipc=ipc, clock=clock))
    report.show("Campaign", rows)
    broken = [fault for load in loads for fault in load.faults]
    for fault in broken[:20]:
        print(f"campaign: {fault}", file=sys.stderr)
    wrong = sum(number(row, "count") for row in rows if row["what"] in ("wrong", "of no epoch"))
    if broken or wrong or left or any(load.sent != load.answered for load in loads):
        raise typer.Exit(1)


def file_of(minutes: float, *, ipc: bool, clock: bool) -> str:
    """Name of the results: those of an hour, of ipc and of a clock that is set stand beside the usual ones."""
    return "campaign" + "_hour" * (minutes >= 60) + "_ipc" * ipc + "_clock" * clock


def _rows(going: _Campaign, loads: list[Load], http: HttpClients, grpc: _GrpcLoad, seconds: float) -> list[Row]:
    faults = [fault for load in loads for fault in load.faults]
    wrong = [fault for fault in faults if "a wrong answer" in fault or "sequence" in fault]
    unordered = [fault for fault in faults if "was answered before" in fault]
    unasked = [fault for fault in faults if "an answer to nothing" in fault]
    codes = sum((load.codes for load in loads), Counter[str]())
    slowest = sorted(going.status_s, reverse=True)
    status_s = [seconds for seconds, _ in slowest]
    private, descriptors = settled(going.private_bytes), settled(going.descriptors)
    figures: dict[str, object] = {
        "seconds": seconds,
        "frames over ZeroMQ": sum(load.answered for load in loads if load.line is None),
        "frames over lines": sum(load.answered for load in loads if load.line is not None),
        "frames over HTTP": len(http.all_answers),
        "frames over gRPC": grpc.answered,
        "lost": sum(load.sent - load.answered for load in loads),
        "doubled or unasked": len(unasked),
        "out of order": len(unordered),
        "wrong": len(wrong) + grpc.wrong + http.wrong + sum(answer.version != 1 for answer in http.all_answers),
        "of no epoch": sum(not 1 <= epoch <= going.epoch for load in loads for epoch in load.epochs),
        "other faults": len(faults) - len(wrong) - len(unordered) - len(unasked),
        **{f"errors, {code}": count for code, count in sorted(codes.items())},
        "HTTP lost": http.lost,
        **{f"HTTP status {status}": count for status, count in sorted(http.errors.items())},
        "gRPC lost": grpc.lost,
        **{f"gRPC status {status}": count for status, count in sorted(grpc.codes.items())},
        "kills and stops": going.faults,
        "epochs that answered": len(set[int]().union(*(load.epochs for load in loads))),
        **dict(sorted(going.done.items())),
        "events": going.events,
        "status ms, median": 1e3 * percentile(status_s, 50),
        "status ms, 99th percentile": 1e3 * percentile(status_s, 99),
        **{f"status ms, {nth}, after {act}": 1e3 * s for nth, (s, act) in zip(_MOST, slowest, strict=False)},
        "longest gap s": max(load.longest_gap_s for load in loads),
        "growth MiB": (private[-1] - private[0]) / 2**20,
        **{f"private MiB, {when}": size / 2**20 for when, size in zip(_WHEN, private, strict=True)},
        **{f"descriptors, {when}": count for when, count in zip(_WHEN, descriptors, strict=True)},
    }
    return listed(figures, "count")


_MOST: Final = ("most", "second", "third")


_WHEN: Final = ("after a minute", "at a quarter", "at half", "at three quarters", "at the end")


def settled(readings: list[tuple[float, int]]) -> list[int]:
    """Medians of readings around each of `_WHEN`, without the first minute, or fifth, in which a daemon warms up."""
    begun_s, ended_s = readings[0][0], readings[-1][0]
    from_s = begun_s + min(60.0, (ended_s - begun_s) / 5)
    later = [value for at_s, value in readings if at_s >= from_s]
    part = max(1, len(later) // 20)
    starts = [round(quarter * (len(later) - part) / 4) for quarter in range(len(_WHEN))]
    return [int(np.median(later[start : start + part])) for start in starts]
