"""Frames per second within a target, at up to 150% of capacity: `python -m benchmarks goodput`.

Open loop, as in `load`: Poisson arrivals at a percentage of capacity, the same for all sides of a round, which take
turns; latency counts from the time at which a frame was to be sent. Capacity is the daemon's rate with several frames
always in flight. Goodput is the number of answers within the target per second.

- `target`: the daemon with `--target-ms`, which refuses at once frames that it could not answer in time.
- `no_target`: the same without a target. It refuses only beyond its limit of frames in flight.
- `mosec`: with the same limit of waiting requests, if it is installed.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from benchmarks.live.load import AtRate, Loaded, Sweep, daemon_side, server_side, together
from benchmarks.live.race import versions
from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread, at_ms
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.contest import Network
from benchmarks.rigs.control import tune
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.servers import ServerPython, missing, pythons
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine

PERCENTS: Final = (80.0, 100.0, 120.0, 150.0)
TARGET, NO_TARGET, MOSEC = "target", "no_target", "mosec"
_CAPACITY_S: Final = 3.0


def goodput_row(at_rate: AtRate, side: str, target_s: float, seconds: float) -> Row:
    rounds = [of_sides[side] for of_sides in at_rate.rounds]
    heard = together(rounds)
    took_s = heard.latencies_s
    in_time = (sum(latency_s <= target_s for latency_s in of_side.latencies_s) / seconds for of_side in rounds)
    return {
        "model": at_rate.model,
        "load %": at_rate.percent,
        "arrivals/s": at_rate.rate_fps,
        "side": side,
        "in time/s": Spread.of(in_time),
        "answered/s": len(took_s) / seconds / len(rounds),
        "late %": 100 * sum(latency_s > target_s for latency_s in took_s) / max(1, len(took_s)),
        "refused %": heard.refused_percent,
        "p50 ms": at_ms(took_s, 50),
        "p99 ms": at_ms(took_s, 99),
        "failed or lost": heard.failed + heard.lost,
    }


def goodput(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = "squeezenet",
    machine: Annotated[str, typer.Option(help="A machine whose places are unthrottled.")] = "this-machine",
    target_ms: Annotated[float, typer.Option(min=0.1, help="The target.")] = 50.0,
    seconds: Annotated[float, typer.Option(min=0.5, help="For each side at each load in each round.")] = 8.0,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 3,
    server_python: ServerPython = None,
) -> None:
    """Frames a second within a target, from 80 to 150% of capacity, open loop."""
    described = load_machine(machine)
    check_runnable(described)
    interpreters = pythons(server_python or [])
    absent = missing(MOSEC, interpreters[MOSEC])
    report, rows = Report("goodput", versions([] if absent else [MOSEC], interpreters)), list[Row]()
    for model in models.split(","):
        report.step(model)
        network = Network.of(model, described)
        python = None if absent else interpreters[MOSEC]
        with Rig() as rig:
            sides, capacity_fps = _sides(rig, network, described, target_ms, python, report)
            for at_rate in Sweep(PERCENTS, count, seconds).over(model, sides, capacity_fps, report.glance):
                rows += [
                    goodput_row(at_rate, side, target_ms / 1e3, seconds)
                    for side in sorted(at_rate.rounds[0], reverse=True)
                ]
                report.save(rows)
    report.show(f"Frames a second within {target_ms:g} ms", rows)
    if absent:
        print(f"goodput: {MOSEC} is left out: {absent}", file=sys.stderr)


def _sides(
    rig: Rig, network: Network, machine: Machine, target_ms: float, mosec: str | None, report: Report
) -> tuple[list[Loaded], float]:
    """Daemons that have tuned themselves, and the frames per second of the one without a target."""
    sides, capacity_fps, waiting = [], 0.0, 0
    for name, options in ((TARGET, ("--target-ms", f"{target_ms:g}")), (NO_TARGET, ())):
        report.glance(f"{network.model}: {name} tunes itself")
        control, asked = daemon_side(rig, network, machine, "throughput", *options)
        tune(control, asked, in_flight=IN_FLIGHT)
        sides.append(Loaded(name, asked))
        waiting = int(control.metadata()["server"]["max_in_flight"])
        if name == NO_TARGET:
            capacity_fps = asked.ask(seconds=_CAPACITY_S, in_flight=IN_FLIGHT)["fps"]
    if mosec is not None:
        report.glance(f"{network.model}: starting {MOSEC}")
        sides.append(server_side(rig, MOSEC, mosec, network, waiting))
    return sides, capacity_fps
