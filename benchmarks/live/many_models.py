"""More models than places, of which one is in use: `python -m benchmarks many_models`.

Many copies of a network at one address, each with its own name and so its own daemon; and another address with one
model only. Frames are sent in turns to this model and to the first of the many. Memory is that of all processes, with
shared pages counted once (PSS). Compiled models are in the cache.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.client_process import IN_FLIGHT
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
    with tempfile.TemporaryDirectory(prefix="many-") as name, contextlib.ExitStack() as closing:
        folder = Path(name)
        report.glance("one starts")
        _, alone = closing.enter_context(_serving(folder / "alone", path, names[:1]))
        report.glance(f"{count} start")
        ready_s, many = closing.enter_context(_serving(folder / "many", path, names))
        hot, lone = (closing.enter_context(_asking(daemon, names[0])) for daemon in (many, alone))
        for asked in (lone, hot):
            report.glance("tuned")
            asked.ask(seconds=tuning_s, in_flight=IN_FLIGHT)
        time.sleep(_CALM_S)
        many_mib, alone_mib = (whole_pss_bytes(daemon.pid) / 2**20 for daemon in (many, alone))
        ratios, rates_fps = [], []
        for number in range(rounds):
            report.glance(f"round {number + 1}")
            fps = [asked.ask(seconds=seconds, in_flight=IN_FLIGHT)["fps"] for asked in (hot, lone)]
            rates_fps.append(fps[0])
            ratios.append(fps[0] / fps[1])
        hot.tell(seconds=seconds, in_flight=IN_FLIGHT)
        first_s = [_first_s(many, idle) for idle in names[1:]]
        hot.hear()
    weights_mib = path.stat().st_size / 2**20
    rows: list[Row] = [
        {"what": "models", "figure": count},
        {"what": "s until all serve", "figure": ready_s},
        {"what": "MiB of all processes", "figure": many_mib},
        {"what": "MiB of all processes, one model alone", "figure": alone_mib},
        {
            "what": "MiB of an idle model beside its weights",
            "figure": (many_mib - alone_mib) / (count - 1) - weights_mib,
        },
        {"what": "frames/s of the one that is asked", "figure": Spread.of(rates_fps)},
        {"what": "over those of one alone", "figure": Spread.of(ratios)},
        {"what": "ms of an idle one's first frame meanwhile, median", "figure": 1e3 * statistics.median(first_s)},
        {"what": "ms of an idle one's first frame meanwhile, most", "figure": 1e3 * max(first_s)},
    ]
    report.save(rows)
    report.show(f"{count} models, {model}", rows)


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


@contextlib.contextmanager
def _asking(daemon: ChildDaemon, model: str) -> Iterator[ChildProcess]:
    with child_process("benchmarks.rigs.arrivals_process", endpoint=daemon.endpoint, model=model) as (asked, _):
        yield asked


def _first_s(daemon: ChildDaemon, model: str) -> float:
    with Client(daemon.endpoint, model=model, timeout_s=_TIMEOUT_S) as client:
        (frame,) = random_frames(model_inputs(client.metadata()["model"]), 1, seed=0)
        begun_s = time.monotonic()
        client.infer(frame)
        return time.monotonic() - begun_s
