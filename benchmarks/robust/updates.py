"""Versions that take over under load, in the daemon and in Ray Serve: `python -m benchmarks updates`.

Both serve the identity network times its version on all cores, so an answer identifies the version that computed it;
the same clients send frames one after the other over HTTP. Repeatedly the next version takes over: in the daemon by
`model_load`, in Ray Serve by a deployment of the same name, with room for the replicas of both.

- `lost`: requests that ended without an answer: their connection broke, or nothing came within 20 s;
- `errors`: answers without a result, by status; `wrong`: results of no version;
- `of another version`: results of a version that should not serve then, as in `campaign_models`;
- `replaced ms`: latency of frames in flight while a version was loaded; `else ms`: of all others;
- `longest gap s`: without a result for any of the clients; `takes s`: from the command until the version serves.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import numpy as np
import typer

from benchmarks.live.race import versions
from benchmarks.report.facts import ROOT
from benchmarks.report.report import Report
from benchmarks.report.results import Row, at_ms
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.http_asking import Address, HttpClients, in_words
from benchmarks.rigs.servers import ServerPython, free_ports, the_python
from benchmarks.robust.campaign_models import SHAPE, Change, broken_versions, loads, overlaps, write_version
from shisha_rt.machine.host.cores import usable_cores
from tests.serving.host_process import HostProcess

DAEMON, RAY = "shisha-rt", "ray_serve"
_CLIENTS: Final = 4
_BETWEEN_S: Final = 1.0
_FIRST_S: Final = 5.0
_MODEL: Final = "a"


@dataclass(frozen=True, slots=True)
class _Side:
    """A running server. `replace`: returns once a version's file serves."""

    name: str
    address: Address
    replace: Callable[[int, Path], object]


def updates(
    replacements: Annotated[int, typer.Option(min=1, help="Of each side.")] = 100,
    server_python: ServerPython = None,
) -> None:
    """Versions that take over under load: the daemon's and Ray Serve's; status 1 if the daemon breaks a promise."""
    python = the_python(RAY, server_python)
    report, rows = Report("updates", versions([RAY], {RAY: python})), list[Row]()
    for name in (DAEMON, RAY):
        report.step(name)
        with Rig() as rig:
            folder = rig.folder()
            rows.append(_replacing(_side(rig, name, folder, python), replacements, folder, report))
        report.save(rows)
    report.show("Versions that take over", rows)
    if any(rows[0][promise] for promise in ("lost", "errors", "wrong", "of another version")):
        raise typer.Exit(1)


def _side(rig: Rig, name: str, folder: Path, python: str) -> _Side:
    if name == DAEMON:
        write_version(folder, 1).rename(folder / f"{_MODEL}.onnx")
        host = rig.enter_context(HostProcess(folder, folder, "--http", "127.0.0.1:0", is_program=True))

        def replace(version: int, path: Path) -> None:
            host.control.call("model_load", model_name=_MODEL, model=str(path), version=str(version))

        return _Side(name, Address.of_model(urlsplit(host.http[0]).port or 0, _MODEL, SHAPE), replace)
    (port,) = free_ports(1)
    settings = {
        "path": str(write_version(folder, 1)),
        "inputs": [{"name": "x", "shape": list(SHAPE), "dtype": "<f4"}],
        "port": port,
        "replicas": len(usable_cores()),
        "folder": str(rig.folder()),
    }
    enter = ("env", f"PYTHONPATH={ROOT}")
    started = child_process("benchmarks.servers.ray_updates", python=python, enter=enter, **settings)
    driver = rig.enter_context(started)
    return _Side(name, Address(port, "/inference"), lambda _, path: driver.ask(path=str(path)))


def _replacing(side: _Side, replacements: int, folder: Path, report: Report) -> Row:
    clients = HttpClients(side.address, SHAPE, _CLIENTS)
    begun_s = time.monotonic()
    clients.start()
    time.sleep(_FIRST_S)
    changes = [Change(0.0, -np.inf, 1)]
    for version in range(2, replacements + 2):
        path = write_version(folder, version)
        change = Change(time.monotonic(), np.inf, version)
        changes.append(change)
        side.replace(version, path)
        change.done_s = time.monotonic()
        report.glance(f"{side.name}: version {version} serves, {replacements + 1 - version} to come")
        time.sleep(_BETWEEN_S)
    clients.finish()
    return _row(side.name, time.monotonic() - begun_s, clients, changes)


def _row(name: str, seconds: float, clients: HttpClients, changes: list[Change]) -> Row:
    answers = clients.all_answers
    spans = loads(changes)
    replaced_s, else_s = list[float](), list[float]()
    for answer in answers:
        during = answer.sent_s, answer.answered_s
        (replaced_s if overlaps(during, spans) else else_s).append(answer.answered_s - answer.sent_s)
    takes_s = [ended_s - began_s for began_s, ended_s in spans]
    return {
        "server": name,
        "seconds": seconds,
        "frames": len(answers),
        "replacements": len(spans),
        "lost": clients.lost,
        "errors": in_words(clients.errors),
        "wrong": clients.wrong,
        "of another version": sum(broken_versions(client_answers, changes) for client_answers in clients.answers),
        "replaced ms, median": at_ms(replaced_s, 50),
        "replaced ms, 99th percentile": at_ms(replaced_s, 99),
        "else ms, median": at_ms(else_s, 50),
        "else ms, 99th percentile": at_ms(else_s, 99),
        "longest gap s": clients.longest_gap_s,
        "takes s": statistics.median(takes_s),
        "takes s, most": max(takes_s),
    }
