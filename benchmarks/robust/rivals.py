"""Workers killed at random under load, the daemon's and Mosec's: `python -m benchmarks campaign_rivals`.

Both serve the identity network with a worker for each core, and the same clients send them one frame after the other
over HTTP and check every answer. Every few seconds one of the workers is killed. The two take turns.

- `lost`: requests that ended without an answer: their connection broke, or nothing came within 20 s;
- `errors`: answers without a result, by status; `wrong`: wrong results;
- `longest gap s`: without a result for any of the clients; `longest request s`: until an answer of any kind;
- `killed worker s`: until another one had started, median;
- `recovered`: whether all clients get answers after the last kill, for twice the time between two kills.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import psutil
import typer

from benchmarks.live.load_figures import percentile
from benchmarks.live.race import versions
from benchmarks.report.facts import facts
from benchmarks.report.progress import Progress
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.http_asking import ANSWER_S, Address, Frame, HttpAsking, errors_in_words
from benchmarks.rigs.servers import missing, pythons, running
from shisha_rt.errors import BadInput
from shisha_rt.machine.host.cores import usable_cores
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, SHAPE, frame_of, write_identity_model

DAEMON, MOSEC = "shisha-rt", "mosec"
_CLIENTS: Final = 4
_LOOK_EVERY_S: Final = 0.01
_MOSEC_TIMEOUT_MS: Final = 3000
"""Time-out of a request; Mosec's default."""


@dataclass(frozen=True, slots=True)
class _Side:
    """A running server. `workers`: the present ones."""

    address: Address
    workers: Callable[[], Collection[int]]


class _Asking(HttpAsking):
    """Sends frames that contain their numbers; the answer equals the frame."""

    def __init__(self, address: Address, ending: threading.Event, numbers: Iterator[int]) -> None:
        super().__init__(address, ending)
        self.answered_s: list[float] = []
        self.took_s: list[float] = []
        self.wrong = 0
        self._numbers = numbers

    def new_frame(self) -> Frame:
        return frame_of(next(self._numbers))

    def take(self, frame: Frame, body: bytes, sent_s: float, answered_s: float) -> None:
        self.answered_s.append(answered_s)
        self.took_s.append(answered_s - sent_s)
        self.wrong += not body.endswith(frame.tobytes())


@dataclass(slots=True)
class _Round:
    """Results of one turn of a side."""

    seconds: float
    kills: int = 0
    back_s: list[float] = field(default_factory=list)
    clients: list[_Asking] = field(default_factory=list)
    recovered: bool = False

    @property
    def answered_s(self) -> list[float]:
        return sorted(at_s for client in self.clients for at_s in client.answered_s)


def campaign_rivals(
    minutes: Annotated[float, typer.Option(min=0.1, help="Of each side in each round.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="In each, both sides have a turn.")] = 2,
    kill_every: Annotated[float, typer.Option("--kill-every", min=0.2, help="Seconds between two kills.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Of the random generator.")] = 0,
    server_python: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]PATH", help="The interpreter that has Mosec; or this one."),
    ] = None,
) -> None:
    """Workers of the daemon and of Mosec killed at random, under the same load over HTTP."""
    interpreters = pythons(server_python or [])
    if (why := missing(MOSEC, interpreters[MOSEC])) is not None:
        raise BadInput(f"--server-python: {why}")
    about = facts() | versions([MOSEC], interpreters)
    rng, progress = random.Random(seed), Progress("campaign_rivals")
    found: dict[str, list[_Round]] = {DAEMON: [], MOSEC: []}
    for number in range(rounds):
        for name in (DAEMON, MOSEC) if number % 2 == 0 else (MOSEC, DAEMON):
            progress.step(f"{name}, round {number + 1} of {rounds}")
            with (
                tempfile.TemporaryDirectory(prefix="campaign-") as folder,
                _daemon(Path(folder)) if name == DAEMON else _mosec(Path(folder), interpreters[MOSEC]) as side,
            ):
                found[name].append(_killing(side, 60 * minutes, kill_every, rng))
            save_csv("campaign_rivals", [_row(name, rounds) for name, rounds in found.items() if rounds], about)
    progress.done()
    rows = [_row(name, rounds) for name, rounds in found.items()]
    show("Workers killed", rows)
    if any(row["wrong"] for row in rows[:1]):
        print("campaign_rivals: the daemon has given a wrong answer", file=sys.stderr)
        raise typer.Exit(1)


@contextlib.contextmanager
def _daemon(folder: Path) -> Iterator[_Side]:
    options = ("--strategy", "guided", "--http", "127.0.0.1:0")
    with DaemonProcess(folder, write_identity_model(folder), *options, is_program=True) as daemon:
        daemon.wait_for_workers()
        port = urlsplit(daemon.http[0]).port
        assert port is not None

        def workers() -> set[int]:
            return {pid for pid in daemon.worker_pids().values() if pid is not None}

        yield _Side(Address.of_model(port, NAME, SHAPE), workers)


@contextlib.contextmanager
def _mosec(folder: Path, python: str) -> Iterator[_Side]:
    inputs = [{"name": "x", "shape": list(SHAPE), "dtype": "<f4"}]
    count = len(usable_cores())
    started = running(
        MOSEC, python, write_identity_model(folder), inputs, count, _CLIENTS, timeout_ms=_MOSEC_TIMEOUT_MS
    )
    with started as server:

        def workers() -> set[int]:
            return {pid for pid in server.workers if _lives(pid)}

        yield _Side(Address(server.port, "/inference"), workers)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _killing(side: _Side, seconds: float, kill_every_s: float, rng: random.Random) -> _Round:
    ending, numbers = threading.Event(), itertools.count()  # the next of a count is one step of the interpreter
    turn = _Round(seconds, clients=[_Asking(side.address, ending, numbers) for _ in range(_CLIENTS)])
    for client in turn.clients:
        client.start()
    begun_s = time.monotonic()
    kill_s = begun_s + kill_every_s
    while time.monotonic() < begun_s + seconds - 2 * kill_every_s:
        time.sleep(max(0.0, kill_s - time.monotonic()))
        there = sorted(side.workers())
        if there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(there), signal.SIGKILL)
                turn.kills += 1
            _await_another(side, set(there), kill_s + kill_every_s, turn)
        kill_s += kill_every_s
    last_s = time.monotonic()
    time.sleep(max(0.0, begun_s + seconds - last_s))
    ending.set()
    for client in turn.clients:
        client.join(2 * ANSWER_S)
    turn.recovered = all(client.answered_s and client.answered_s[-1] > last_s for client in turn.clients)
    return turn


def _await_another(side: _Side, before: set[int], until_s: float, found: _Round) -> None:
    begun_s = time.monotonic()
    while time.monotonic() < until_s:
        now = set(side.workers())
        if now - before and len(now) >= len(before):
            found.back_s.append(time.monotonic() - begun_s)
            return
        time.sleep(_LOOK_EVERY_S)


def _row(name: str, rounds: list[_Round]) -> Row:
    clients = [client for turn in rounds for client in turn.clients]
    took_s = [seconds for client in clients for seconds in client.took_s]
    back_s = [seconds for turn in rounds for seconds in turn.back_s]
    return {
        "server": name,
        "seconds": sum(turn.seconds for turn in rounds),
        "frames": len(took_s),
        "kills": sum(turn.kills for turn in rounds),
        "lost": sum(client.lost for client in clients),
        "errors": errors_in_words(clients),
        "wrong": sum(client.wrong for client in clients),
        "longest gap s": max((b - a for turn in rounds for a, b in itertools.pairwise(turn.answered_s)), default=None),
        "longest request s": max(client.longest_s for client in clients),
        "p50 ms": 1e3 * percentile(took_s, 50) if took_s else None,
        "p99 ms": 1e3 * percentile(took_s, 99) if took_s else None,
        "killed worker s": statistics.median(back_s) if back_s else None,
        "recovered": "yes" if all(turn.recovered for turn in rounds) else "no",
    }
