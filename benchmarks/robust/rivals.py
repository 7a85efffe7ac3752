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
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlsplit

import psutil
import typer

from benchmarks.live.race import versions
from benchmarks.report.report import Report
from benchmarks.report.results import Row, at_ms, in_turns
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.http_asking import Address, HttpClients, in_words
from benchmarks.rigs.servers import ServerPython, running, the_python
from shisha_rt.machine.host.cores import usable_cores
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, SHAPE, write_identity_model

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


@dataclass(slots=True)
class _Round:
    seconds: float
    clients: HttpClients
    kills: int = 0
    back_s: list[float] = field(default_factory=list)
    recovered: bool = False


def campaign_rivals(
    minutes: Annotated[float, typer.Option(min=0.1, help="Of each side in each round.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="In each, both sides have a turn.")] = 2,
    kill_every: Annotated[float, typer.Option("--kill-every", min=0.2, help="Seconds between two kills.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Of the random generator.")] = 0,
    server_python: ServerPython = None,
) -> None:
    """Workers of the daemon and of Mosec killed at random, under the same load over HTTP."""
    python = the_python(MOSEC, server_python)
    rng, report = random.Random(seed), Report("campaign_rivals", versions([MOSEC], {MOSEC: python}))
    by_side: dict[str, list[_Round]] = {DAEMON: [], MOSEC: []}
    for number, turn in enumerate(in_turns((DAEMON, MOSEC), rounds)):
        for name in turn:
            report.step(f"{name}, round {number + 1} of {rounds}")
            with Rig() as rig:
                by_side[name].append(_killing(_side(rig, name, python), 60 * minutes, kill_every, rng))
            report.save([_row(name, rounds) for name, rounds in by_side.items() if rounds])
    rows = [_row(name, rounds) for name, rounds in by_side.items()]
    report.show("Workers killed", rows)
    if any(row["wrong"] for row in rows[:1]):
        print("campaign_rivals: the daemon has given a wrong answer", file=sys.stderr)
        raise typer.Exit(1)


def _side(rig: Rig, name: str, python: str) -> _Side:
    folder = rig.folder()
    model = write_identity_model(folder)
    if name == DAEMON:
        options = ("--strategy", "guided", "--http", "127.0.0.1:0")
        daemon = rig.enter_context(DaemonProcess(folder, model, *options, is_program=True))
        daemon.wait_for_workers()
        address = Address.of_model(urlsplit(daemon.http[0]).port or 0, NAME, SHAPE)
        return _Side(address, lambda: [pid for pid in daemon.worker_pids().values() if pid is not None])
    inputs, count = [{"name": "x", "shape": list(SHAPE), "dtype": "<f4"}], len(usable_cores())
    started = running(MOSEC, python, model, inputs, count, _CLIENTS, timeout_ms=_MOSEC_TIMEOUT_MS)
    server = rig.enter_context(started)
    return _Side(Address(server.port, "/inference"), lambda: list(filter(_lives, server.workers)))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _killing(side: _Side, seconds: float, kill_every_s: float, rng: random.Random) -> _Round:
    turn = _Round(seconds, HttpClients(side.address, SHAPE, _CLIENTS))
    turn.clients.start()
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
    turn.clients.finish()
    turn.recovered = all(answers and answers[-1].answered_s > last_s for answers in turn.clients.answers)
    return turn


def _await_another(side: _Side, before: set[int], until_s: float, turn: _Round) -> None:
    begun_s = time.monotonic()
    while time.monotonic() < until_s:
        now = set(side.workers())
        if now - before and len(now) >= len(before):
            turn.back_s.append(time.monotonic() - begun_s)
            return
        time.sleep(_LOOK_EVERY_S)


def _row(name: str, rounds: list[_Round]) -> Row:
    answers = [turn.clients.all_answers for turn in rounds]
    took_s = [answer.answered_s - answer.sent_s for turn_answers in answers for answer in turn_answers]
    gaps_s = (gap_s for turn in rounds if (gap_s := turn.clients.longest_gap_s) is not None)
    back_s = [seconds for turn in rounds for seconds in turn.back_s]
    errors = sum((turn.clients.errors for turn in rounds), Counter[int]())
    return {
        "server": name,
        "seconds": sum(turn.seconds for turn in rounds),
        "frames": len(took_s),
        "kills": sum(turn.kills for turn in rounds),
        "lost": sum(turn.clients.lost for turn in rounds),
        "errors": in_words(errors),
        "wrong": sum(turn.clients.wrong for turn in rounds)
        + sum(answer.version != 1 for turn_answers in answers for answer in turn_answers),
        "longest gap s": max(gaps_s, default=None),
        "longest request s": max(turn.clients.longest_s for turn in rounds),
        "p50 ms": at_ms(took_s, 50),
        "p99 ms": at_ms(took_s, 99),
        "killed worker s": statistics.median(back_s) if back_s else None,
        "recovered": "yes" if all(turn.recovered for turn in rounds) else "no",
    }
