"""Two models on the same cores while their loads change: `python -m benchmarks several`.

Open loop: Poisson arrivals with changing rates, drawn beforehand and the same for all sides; latency counts from the
time at which a frame was to be sent. A model's load is stated as a fraction of the rate of a daemon with this model
only, on all cores; the sum for both models is a percentage of the machine. Each model has a target; goodput is the rate
of answers within it.

- `antiphase`: one model has four fifths of the load and the other one fifth, swapped every ten seconds; `steps`: half
  each, or nine tenths and one tenth, at random; `walk`: a random walk, with a step every two seconds.
- `shisha-rt`: both at one address, with their targets. `two daemons, all cores`: independent daemons, one for each
  model; `two daemons, a core each`: with half of the cores each.
- `mosec, all cores`, `mosec, a core each`: a server for each model, with a worker for each of its cores, which drops
  requests at the target; `mlserver`: one server for both, with a worker for each core.

`of the machine`: goodput of both models together, each as a fraction of its rate alone. Sides take turns at each load.
`core moves`: how many cores went to another model; `s until a core moves`: from a step to the first one, median.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from benchmarks.lists import numbers_in, words_in
from benchmarks.live.load import poisson
from benchmarks.live.race import versions
from benchmarks.report.report import Report
from benchmarks.report.results import Row, at_ms
from benchmarks.rigs.asking import Heard
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.contest import Network, Tell
from benchmarks.rigs.control import events_since
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.servers import Running, ServerPython, awake, missing, pythons, running
from shisha_rt.client import Client
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.machine_file import load_machine

PATTERNS: Final = ("antiphase", "steps", "walk")
OURS, FREE, APART = "shisha-rt", "two daemons, all cores", "two daemons, a core each"
_LEAD_S: Final = 2.0
_CAPACITY_S: Final = 4.0
_AT_ONCE: Final = 3
"""Frames in flight while a daemon with a target tunes itself: more would miss the target, and be refused."""

Segment = tuple[float, float]
"""Length in seconds, and the first model's fraction of the load."""


def segments(pattern: str, seconds: float, seed: int) -> list[Segment]:
    rng = random.Random(f"{pattern} {seed}")
    long_s = 10.0
    parts: Iterator[float] = itertools.cycle((0.8, 0.2))
    if pattern == "steps":
        parts = iter(lambda: rng.choice((0.1, 0.5, 0.9)), None)
    elif pattern == "walk":
        long_s, parts = 2.0, _walk(rng)
    shared: list[Segment] = []
    while (left_s := seconds - sum(length_s for length_s, _ in shared)) > 0:
        shared.append((min(long_s, left_s), next(parts)))
    return shared


def _walk(rng: random.Random) -> Iterator[float]:
    part = 0.5
    while True:
        yield part
        part = min(0.9, max(0.1, part + rng.uniform(-0.25, 0.25)))


def arrivals(shared: Sequence[Segment], rates_fps: Sequence[float], seed: str) -> list[list[float]]:
    """Ascending times of arrivals of both models; `rates_fps`: of each model, if it had all of the load."""
    of_each: list[list[float]] = [[], []]
    begun_s = 0.0
    for number, (long_s, part) in enumerate(shared):
        for model, of_all in enumerate((part, 1 - part)):
            at_s = poisson(rates_fps[model] * of_all, long_s, f"{seed} {model} {number}")
            of_each[model] += [begun_s + after_s for after_s in at_s if after_s < long_s]
        begun_s += long_s
    return of_each


@dataclass(frozen=True, slots=True)
class _Side:
    """A side. `asked`: processes that send frames, one for each model. `keepers`: of servers, see `awake`. `control`: a
    client of the daemon that deals cores.
    """

    name: str
    asked: list[ChildProcess]
    keepers: Sequence[ChildProcess] = ()
    control: Client | None = None

    def heard(self, at_s: Sequence[Sequence[float]]) -> list[Heard]:
        with contextlib.ExitStack() as meanwhile, ThreadPoolExecutor(len(self.asked)) as pool:
            for keeper in self.keepers:
                meanwhile.enter_context(awake(keeper))
            answers = pool.map(lambda asked, times: asked.ask(arrivals=times, count_from_s=_LEAD_S), self.asked, at_s)
            return [Heard(**answer) for answer in answers]


@dataclass(frozen=True, slots=True)
class AtLoad:
    """Results of one side at one load. `moved_s`: seconds from steps to the next move of a core."""

    pattern: str
    percent: float
    side: str
    seconds: float
    heard: Sequence[Heard]
    moves: int | None
    moved_s: Sequence[float]

    def rows(self, models: Sequence[str], alone_fps: Sequence[float], targets_s: Sequence[float]) -> list[Row]:
        in_time = [
            sum(latency_s <= target_s for latency_s in heard.latencies_s) / self.seconds
            for heard, target_s in zip(self.heard, targets_s, strict=True)
        ]
        named: Row = {"pattern": self.pattern, "load %": self.percent, "side": self.side}
        rows: list[Row] = [
            {
                **named,
                "model": model,
                "of the machine": good_fps / fps,
                "in time/s": good_fps,
                "arrivals/s": heard.sent / self.seconds,
                "in time %": 100 * good_fps * self.seconds / max(1, heard.sent),
                "refused %": heard.refused_percent,
                "failed or lost": heard.failed + heard.lost,
                "p50 ms": at_ms(heard.latencies_s, 50),
                "p99 ms": at_ms(heard.latencies_s, 99),
                "core moves": None,
                "s until a core moves": None,
            }
            for model, heard, good_fps, fps in zip(models, self.heard, in_time, alone_fps, strict=True)
        ]
        both: Row = {
            **dict.fromkeys(rows[0]),
            **named,
            "model": "both",
            "of the machine": sum(good / fps for good, fps in zip(in_time, alone_fps, strict=True)),
            "core moves": self.moves,
            "s until a core moves": statistics.median(self.moved_s) if self.moved_s else None,
        }
        return [*rows, both]


def several(
    models: Annotated[str, typer.Option(help="Two networks of the zoo, separated by a comma.")] = "squeezenet,resnet50",
    targets_ms: Annotated[str, typer.Option(help="A target for each of them.")] = "100,400",
    percents: Annotated[str, typer.Option(help="Of the machine, of both models together.")] = "90,110",
    seconds: Annotated[float, typer.Option(min=5.0, help="For each side at each load.")] = 60.0,
    tuning_s: Annotated[float, typer.Option(min=1.0, help="For each model of each daemon, before all.")] = 20.0,
    patterns: Annotated[str, typer.Option(help="How loads change.")] = ",".join(PATTERNS),
    seed: Annotated[int, typer.Option(help="Of arrivals and of what is random in patterns.")] = 0,
    server_python: ServerPython = None,
    part: Annotated[str, typer.Option("--name", metavar="NAME", help="Of the results: several_NAME.")] = "",
) -> None:
    """Two models on the same cores while their loads change, beside two daemons and other servers."""
    names = models.split(",")
    targets_s = [target_ms / 1e3 for target_ms in numbers_in("--targets-ms", targets_ms)]
    loads = [*itertools.product(words_in("--patterns", patterns, PATTERNS), numbers_in("--percents", percents))]
    if len(names) != 2 or len(targets_s) != 2:
        raise BadInput(f"--models {models} --targets-ms {targets_ms}: expected two models and two targets")
    interpreters = pythons(server_python or [])
    absent = {name: why for name in ("mosec", "mlserver") if (why := missing(name, interpreters[name]))}
    servers = {name: interpreters[name] for name in ("mosec", "mlserver") if name not in absent}
    report, at_loads = Report("several", versions(list(servers), interpreters)), list[AtLoad]()
    networks = [Network.of(name, load_machine("this-machine")) for name in names]
    alone_fps = [_alone_fps(network, tuning_s, report.glance) for network in networks]
    with Rig() as rig:
        sides = _sides(rig, networks, targets_s, servers, tuning_s, report.glance)
        report.about |= {"alone": ", ".join(f"{name} {fps:.4g}/s" for name, fps in zip(names, alone_fps, strict=True))}
        for pattern, percent in loads:
            shared = segments(pattern, _LEAD_S + seconds, seed)
            rates_fps = [fps * percent / 100 for fps in alone_fps]
            at_s = arrivals(shared, rates_fps, f"{seed} {pattern} {percent}")
            for side in sides:
                report.glance(f"{pattern}, {percent:g}% of the machine: {side.name}")
                begun_s = time.time()
                heard = side.heard(at_s)
                moves, moved_s = (None, []) if side.control is None else _moves(side.control, begun_s, shared)
                at_loads.append(AtLoad(pattern, percent, side.name, seconds, heard, moves, moved_s))
                rows = [row for at_load in at_loads for row in at_load.rows(names, alone_fps, targets_s)]
                report.save(rows, f"several_{part}" if part else "")
    report.show("Two models while their loads change", rows)
    for name, why in absent.items():
        print(f"several: {name} is left out: {why}", file=sys.stderr)


def _moves(control: Client, begun_s: float, shared: Sequence[Segment]) -> tuple[int, list[float]]:
    """Moves of cores since `begun_s`, and the seconds until the first one after each step, if there is one before the
    next step.
    """
    kinds = ("place_dealt", "place_taken_back")
    at_s = [event["time_s"] for event in events_since(control) if event["kind"] in kinds and event["time_s"] > begun_s]
    moved_s, step_s = [], begun_s
    for long_s, _ in shared:
        if step_s > begun_s:
            moved_s += [moved - step_s for moved in at_s if step_s <= moved < step_s + long_s][:1]
        step_s += long_s
    return len(at_s), moved_s


def _alone_fps(network: Network, tuning_s: float, tell: Tell) -> float:
    """Frames per second of a daemon with all cores and no target, with several frames always in flight."""
    tell(f"{network.model} alone")
    with Rig() as rig:
        _, asked = rig.served(f"zoo:{network.model}")
        asked.ask(seconds=tuning_s, in_flight=IN_FLIGHT)
        return float(asked.ask(seconds=_CAPACITY_S, in_flight=IN_FLIGHT)["fps"])


def _sides(
    rig: Rig,
    networks: Sequence[Network],
    targets_s: Sequence[float],
    servers: Mapping[str, str],
    tuning_s: float,
    tell: Tell,
) -> list[_Side]:
    """All sides that are possible, ours first; daemons have tuned themselves on each model in turn."""
    cores = sorted(networks[0].cores)
    halves = cores[: len(cores) // 2] or cores, cores[len(cores) // 2 :]
    models = [f"zoo:{network.model}" for network in networks]
    folder = rig.folder()
    tell(f"{OURS} starts")
    tables = [
        f'[[model]]\nmodel = "{model}"\nname = "{network.model}"\ntarget_ms = {1e3 * target_s:g}\n'
        for model, network, target_s in zip(models, networks, targets_s, strict=True)
    ]
    (folder / "both.toml").write_text("\n".join(tables))
    ours, control = rig.daemon(str(folder / "both.toml"))
    both = [rig.child("arrivals_process", endpoint=ours.endpoint, model=network.model) for network in networks]
    sides = [_Side(OURS, both, control=control)]
    tuners: list[Client] = []
    for name, of_each in ((FREE, (cores, cores)), (APART, halves)):
        tell(f"{name} start")
        side = _Side(name, [])
        for model, target_s, own in zip(models, targets_s, of_each, strict=True):
            at = rig.folder()
            machine = at / "machine.toml"
            machine.write_text("".join(f'[[place]]\nname = "core{core}"\ncores = [{core}]\n' for core in own))
            options = ("--target-ms", f"{1e3 * target_s:g}", "--leases", str(at), "--machine", str(machine))
            tuner, asked = rig.served(model, *options)
            tuners.append(tuner)
            side.asked.append(asked)
        sides.append(side)
    for name, asked in [(side.name, asked) for side in sides for asked in side.asked]:
        tell(f"{name}: tuned")
        asked.ask(seconds=tuning_s, in_flight=_AT_ONCE)
    for tuner in tuners:  # or it compares plans while others have their turn; with ours they follow the cores
        tuner.call("tuner_set", pause=True)

    def start(name: str, network: Network, workers: int, **limits: Any) -> Running:
        started = running(name, servers[name], network.path, network.inputs, workers, IN_FLIGHT, **limits)
        return rig.enter_context(started)

    if "mosec" in servers:
        for name, of_each in (("mosec, all cores", (cores, cores)), ("mosec, a core each", halves)):
            tell(f"{name} starts")
            started = [
                start("mosec", network, len(own), timeout_ms=round(1e3 * target_s), cores=own)
                for network, target_s, own in zip(networks, targets_s, of_each, strict=True)
            ]
            sides.append(_Side(name, [server.client for server in started], [server.keeper for server in started]))
    if "mlserver" in servers:
        tell("mlserver starts")
        first, second = networks
        further = {second.model: {"path": str(second.path), "inputs": second.inputs}}
        server = start("mlserver", first, len(cores), further=further)
        sides.append(_Side("mlserver", [server.client, *server.further.values()], [server.keeper]))
    for side in sides:
        for keeper in side.keepers:
            keeper.ask(runs=False)
    return sides
