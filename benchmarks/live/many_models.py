"""More models than places, of which one is in use: `python -m benchmarks many_models`.

Many copies of a network at one address, each with its own name and so its own daemon; and another address with one
model only. Frames are sent in turns to this model and to the first of the many. Memory is that of all processes, with
shared pages counted once (PSS). Compiled models are in the cache.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Spread, listed
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.resources import whole_pss_bytes
from shisha_rt.cli.drive.child_daemon import ChildDaemon, child_daemon
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client
from shisha_rt.model.zoo import resolve_model

_CALM_S: Final = 5.0
_TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.05


def many_models(
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = "squeezenet",
    count: Annotated[int, typer.Option("--count", min=2, help="How many of it.")] = 12,
    tuning_s: Annotated[float, typer.Option(min=1.0, help="For the one that is asked, and the one alone.")] = 60.0,
    seconds: Annotated[float, typer.Option(min=0.5, help="For each in each round.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 5,
) -> None:
    """Many models on few cores: how soon they serve, what an idle one takes, and what a busy one gets."""
    report = Report("many_models")
    path = resolve_model(f"zoo:{model}", print)
    names = [f"{model}{number}" for number in range(count)]
    with Rig() as rig:
        folder = rig.folder()
        report.glance("one starts")
        _, alone = rig.enter_context(_serving(folder / "alone", path, names[:1]))
        report.glance(f"{count} start")
        ready_s, many = rig.enter_context(_serving(folder / "many", path, names))
        hot, lone = (
            rig.child("arrivals_process", endpoint=daemon.endpoint, model=names[0]) for daemon in (many, alone)
        )
        for asked in (lone, hot):
            report.glance("tuned")
            asked.ask(seconds=tuning_s, in_flight=IN_FLIGHT)
        time.sleep(_CALM_S)
        many_mib, alone_mib = (whole_pss_bytes(daemon.pid) / 2**20 for daemon in (many, alone))
        sides = {
            name: partial(asked.ask, seconds=seconds, in_flight=IN_FLIGHT)
            for name, asked in (("hot", hot), ("alone", lone))
        }
        bursts = report.rounds(model, sides, rounds)
        hot.tell(seconds=seconds, in_flight=IN_FLIGHT)
        first_s = [_first_s(many, idle) for idle in names[1:]]
        hot.hear()
    weights_mib = path.stat().st_size / 2**20
    rows = listed(
        {
            "models": count,
            "s until all serve": ready_s,
            "MiB of all processes": many_mib,
            "MiB of all processes, one model alone": alone_mib,
            "MiB of an idle model beside its weights": (many_mib - alone_mib) / (count - 1) - weights_mib,
            "frames/s of the one that is asked": Spread.of(burst["hot"]["fps"] for burst in bursts),
            "over those of one alone": Spread.of(burst["hot"]["fps"] / burst["alone"]["fps"] for burst in bursts),
            "ms of an idle one's first frame meanwhile, median": 1e3 * statistics.median(first_s),
            "ms of an idle one's first frame meanwhile, most": 1e3 * max(first_s),
        },
        "figure",
    )
    report.keep(f"{count} models, {model}", rows)


@contextlib.contextmanager
def _serving(folder: Path, path: Path, names: list[str]) -> Iterator[tuple[float, ChildDaemon]]:
    """Serve copies of one model at one address; return also the seconds until all serve."""
    folder.mkdir()
    (folder / "daemon.toml").write_text("\n".join(f'[[model]]\nmodel = "{path}"\nname = "{name}"\n' for name in names))
    begun_s = time.monotonic()
    with child_daemon(str(folder / "daemon.toml"), "--leases", str(folder)) as daemon:
        with Client(daemon.endpoint, timeout_s=_TIMEOUT_S) as client:
            while not client.call("server_ready")["ready"]:
                time.sleep(_LOOK_EVERY_S)
        yield time.monotonic() - begun_s, daemon


def _first_s(daemon: ChildDaemon, model: str) -> float:
    with Client(daemon.endpoint, model=model, timeout_s=_TIMEOUT_S) as client:
        (frame,) = random_frames(model_inputs(client.metadata()["model"]), 1, seed=0)
        begun_s = time.monotonic()
        client.infer(frame)
        return time.monotonic() - begun_s
