"""Two daemons on one host, each under a CPU quota of one core: `python -m benchmarks quotas`.

Daemons that choose their cores are compared with daemons pinned to a core each, under the same quotas; the pairs take
turns, both daemons of a pair at once. Then the quota of one daemon is halved and doubled while it serves. Clients are
in no control group. Needs two cores and root.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, Spread, save_csv, show
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.control_group import QuotaGroup
from benchmarks.rigs.served import IN_FLIGHT
from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.model.zoo import resolve_model

_QUOTA_CORES: Final = 1.0
_FOLLOWS_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two daemons at once. `rates`: frames per second of each; `throttled`: throttled seconds per second, of both."""

    cores: str
    rates: tuple[float, float]
    throttled: float


@contextlib.contextmanager
def _daemons(model: str, folder: Path, machines: Sequence[Path | None]) -> Iterator[list[str]]:
    """Start daemons; return their endpoints. `machines`: one for each daemon; None: it chooses its core."""
    with contextlib.ExitStack() as closing:
        endpoints = []
        for machine in machines:
            group = closing.enter_context(QuotaGroup(_QUOTA_CORES))
            chosen = () if machine is None else ("--machine", str(machine))
            with group.entered():
                daemon = closing.enter_context(child_daemon(model, "--leases", str(folder / "leases"), *chosen))
            endpoints.append(daemon.endpoint)
        yield endpoints


def _status(endpoint: str) -> dict[str, Any]:
    with Client(endpoint) as client:
        return dict(client.status())


def _measured(endpoints: Sequence[str], seconds: float) -> _Pair:
    with contextlib.ExitStack() as closing:
        clients = [
            closing.enter_context(
                child_process("benchmarks.rigs.client_process", endpoint=endpoint, in_flight=IN_FLIGHT)
            )[0]
            for endpoint in endpoints
        ]
        _at_once(clients, 1.0)
        before = [_status(endpoint)["host"]["throttled_s"] for endpoint in endpoints]
        start_s = time.monotonic()
        bursts = _at_once(clients, seconds)
        time.sleep(2.5)  # the count is read every two seconds
        after = [_status(endpoint)["host"]["throttled_s"] for endpoint in endpoints]
    took_s = time.monotonic() - start_s
    cores = [
        ",".join(str(core) for place in _status(endpoint)["places"] if place["pid"] for core in place["cores"])
        for endpoint in endpoints
    ]
    one, other = (1 / burst["frame_s"] for burst in bursts)
    return _Pair(" | ".join(cores), (one, other), (sum(after) - sum(before)) / took_s)


def _at_once(clients: Sequence[Any], seconds: float) -> list[dict[str, Any]]:
    bursts: list[dict[str, Any]] = [{} for _ in clients]

    def stream(index: int) -> None:
        bursts[index] = clients[index].ask(seconds=seconds)

    threads = [threading.Thread(target=stream, args=(index,)) for index in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bursts


def _changed(model: str, folder: Path) -> list[Row]:
    """One daemon under load, whose quota is changed: how soon its plan follows, and the results of frames."""
    every = len(usable_cores())
    rows: list[Row] = []
    with QuotaGroup(2.0 * every) as group:
        with group.entered():
            daemons = child_daemon(model, "--leases", str(folder / "changed"))
        with contextlib.ExitStack() as closing:
            with group.entered():
                daemon = closing.enter_context(daemons)
            with SteadyLoad(daemon.endpoint, in_flight=IN_FLIGHT) as load:
                time.sleep(5.0)
                for what, quota_cores, places in (("halved", every / 2, every // 2), ("doubled", 2.0 * every, every)):
                    group.allow(quota_cores)
                    start_s = time.monotonic()
                    while _places_planned(daemon.endpoint) != max(1, places):
                        load.check()
                        if time.monotonic() > start_s + _FOLLOWS_WITHIN_S:
                            break
                        time.sleep(0.1)
                    follows_s = time.monotonic() - start_s
                    planned = _places_planned(daemon.endpoint)
                    time.sleep(5.0)
                    rows.append(
                        {"quota": f"{what} to {quota_cores:g}", "places": planned, "followed after s": follows_s}
                    )
            tally = load.tally
    kept = {"sent": tally.sent, "lost": tally.lost, "errors": tally.errors, "different": tally.different}
    return [{**row, **kept} for row in rows]


def _places_planned(endpoint: str) -> int:
    stages = _status(endpoint)["plan"]["stages"]
    return len({place for stage in stages for team in stage["teams"] for place in team["places"]})


def quotas(
    model: Annotated[str, typer.Option(help="A model, as `shisha-rt` takes it.")] = "zoo:squeezenet",
    rounds: Annotated[int, typer.Option(help="Of both pairs of daemons.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of each measurement.")] = 5.0,
) -> None:
    """Daemons that choose their cores under quotas, against pinned ones; and a quota that changes."""
    resolve_model(model, lambda _: None)
    sides: dict[str, list[_Pair]] = {"left to themselves": [], "pinned by hand": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = []
        for core in usable_cores()[:2]:
            files.append(folder / f"core{core}.toml")
            files[-1].write_text(f'[[place]]\nname = "core{core}"\ncores = [{core}]\n')
        for number in range(rounds):
            for side, machines in (("left to themselves", [None, None]), ("pinned by hand", files)):
                (folder / f"{number}{side}").mkdir()
                with _daemons(model, folder / f"{number}{side}", machines) as endpoints:
                    sides[side].append(_measured(endpoints, seconds))
        changed = _changed(model, folder)
    pinned = [statistics.mean(pair.rates) for pair in sides["pinned by hand"]]
    rows: list[Row] = [
        {
            "two daemons": side,
            "cores": ", ".join(dict.fromkeys(pair.cores for pair in pairs)),
            "frames/s each": Spread.of([rate for pair in pairs for rate in pair.rates]),
            "over pinned": Spread.of([statistics.mean(p.rates) / by for p, by in zip(pairs, pinned, strict=True)]),
            "throttled s a second, both": Spread.of([pair.throttled for pair in pairs]),
        }
        for side, pairs in sides.items()
    ]
    about = facts(f"quotas --model {model} --rounds {rounds} --seconds {seconds:g}")
    show(f"two daemons under a quota of {_QUOTA_CORES:g} core each, {model}", rows)
    show("a quota that changes under load", changed)
    save_csv("quotas", rows, about)
    save_csv("quotas_changed", changed, about)
