"""The daemon, plain engines and other servers on the same cores, in turns, in one run: `python -m benchmarks race`.

Two unthrottled cores, with a server's worker for each; nothing else runs. `rigs/contest.py` describes the sides: the
daemon with its own client, over shared memory (with any engine, and with ONNX Runtime only), over ipc and over TCP;
plain engines, whose frames are in their own memory; servers with a lean client of raw bytes over persistent connections
and the same number of frames in flight. The daemon tunes itself beforehand. Times are wall time per frame, medians over
the rounds with their quartiles.

- `*_batches`: a server with batching of its own, with the setting that answered most in a round of each; it gets the
  model with an open first axis, whatever it was exported for. The column `plan` has the setting.
- `best engine / it`, `best server / it`: above 1 the side is faster; from each round's ratio to the rival that is the
  best over all rounds. Every plain engine counts, even if the daemon may not use it on this machine.
- `others %`: the share of the cores that all other sides used meanwhile, which should be idle.
- `race_cpu`: CPU time per frame by component, and `waiting`, the rest of the cores' time: unequally shared work,
  messages in transit. `workers`: the processes that compute, with their engines; `front`: all else of a server.
  `best engine's CPU / it`: CPU time of the plain engine with the best wall time, over that of the side; other work on
  the host hardly changes it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as version_of
from importlib.util import find_spec
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread, written
from benchmarks.rigs.batching import BATCHING
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.contest import DAEMON, SIDES, Network, Round, contest
from benchmarks.rigs.engine_process import PLAIN
from benchmarks.rigs.servers import SERVERS, ServerPython, missing, pythons, version
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.model.zoo import TRAINED

MODELS: Final = "squeezenet,shufflenet,resnet50,inception_v1,densenet121,alexnet," + ",".join(TRAINED)
_OPENVINO: Final = "openvino"
_ALL_SERVERS: Final = (*SERVERS, *BATCHING)
_SPENDERS: Final = ("workers", "loop", "I/O threads", "front", "client", "client's threads")


@dataclass(frozen=True, slots=True)
class Raced:
    """All rounds of one network."""

    model: str
    rounds: tuple[Round, ...]
    cores: int
    plans: Mapping[str, str]

    @property
    def sides(self) -> list[str]:
        return [name for name in SIDES if name in self.rounds[0]]

    def ms(self, side: str) -> Spread:
        return Spread.of(1e3 * by_side[side].frame_s for by_side in self.rounds)

    def best(self, rivals: Collection[str]) -> str | None:
        """The fastest of `rivals` over all rounds; None: none of them took part."""
        return min(
            (rival for rival in rivals if rival in self.rounds[0]),
            key=lambda rival: self.ms(rival).median,
            default=None,
        )

    def over(self, side: str, rivals: Collection[str]) -> Spread | None:
        """The best rival's time over this side's, by round, as a slow moment of the host affects both sides of it."""
        best = self.best([rival for rival in rivals if rival != side])
        if best is None or side not in self.rounds[0]:
            return None
        return Spread.of(by_side[best].frame_s / by_side[side].frame_s for by_side in self.rounds)

    def row(self, side: str) -> Row:
        is_daemon = side in DAEMON
        return {
            "model": self.model,
            "side": side,
            "ms": self.ms(side),
            "best engine": self.best(PLAIN) if is_daemon else None,
            "best engine / it": self.over(side, PLAIN) if is_daemon else None,
            "best server": self.best(_ALL_SERVERS) if is_daemon else None,
            "best server / it": self.over(side, _ALL_SERVERS) if is_daemon else None,
            "others %": Spread.of(100 * by_side[side].others for by_side in self.rounds),
            "plan": self.plans.get(side),
        }

    def cpu_row(self, side: str) -> Row:
        """Microseconds per frame; in each round the components and `waiting` add up to the time of all cores."""
        readings, best = [by_side[side] for by_side in self.rounds], self.best(PLAIN)
        return {
            "model": self.model,
            "side": side,
            **{
                f"{what} µs": Spread.of(1e6 * reading.cpu_s[what] for reading in readings)
                if what in readings[0].cpu_s
                else None
                for what in _SPENDERS
            },
            "best engine's CPU / it": None
            if best is None
            else Spread.of(
                sum(by_side[best].cpu_s.values()) / sum(by_side[side].cpu_s.values()) for by_side in self.rounds
            ),
            "waiting µs": Spread.of(
                1e6 * (self.cores * reading.frame_s - sum(reading.cpu_s.values())) for reading in readings
            ),
            "all cores µs": Spread.of(1e6 * self.cores * reading.frame_s for reading in readings),
        }


def wanted_sides(text: str) -> list[str]:
    """Sides by name, or by `daemon`, `engines`, `servers` and `batching` for all of a kind. Raises BadInput."""
    kinds = {"daemon": DAEMON, "engines": PLAIN, "servers": SERVERS, "batching": BATCHING}
    wanted = {side for name in text.split(",") for side in kinds.get(name, (name,))}
    if unknown := wanted - set(SIDES):
        raise BadInput(f"--sides: {min(unknown)} is none, expected some of {', '.join((*kinds, *SIDES))}")
    return [side for side in SIDES if side in wanted]


def race(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine whose places are unthrottled.")] = "this-machine",
    sides: Annotated[
        str, typer.Option(help="Some of them by name, or daemon, engines, servers, batching for all of a kind.")
    ] = "daemon,engines,servers",
    in_flight: Annotated[int, typer.Option(min=1, help="Frames that each client keeps in flight.")] = IN_FLIGHT,
    seconds: Annotated[float, typer.Option(min=0.2, help="For each side in each round.")] = 1.5,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 5,
    server_python: ServerPython = None,
    add: Annotated[
        bool, typer.Option("--add", help="Keep what the file has of other networks; each row names its commit.")
    ] = False,
    part: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Of the results, beside those of the whole race: race_NAME.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Three short rounds.")] = False,
) -> None:
    """The daemon against plain engines and other servers, at saturation."""
    count, seconds = (3, 0.8) if quick else (count, seconds)
    described = load_machine(machine)
    check_runnable(described)
    names, interpreters = wanted_sides(sides), pythons(server_python or [])
    servers = [name for name in SERVERS if {name, f"{name}_batches"} & {*names}]
    left_out = {name: why for name in servers if (why := missing(name, interpreters[name]))}
    names = [name for name in names if BATCHING.get(name, name) not in left_out]
    report = Report("race", versions([name for name in servers if name not in left_out], interpreters), quick=quick)
    file = _file(machine, part)
    raced: list[Raced] = []
    for model in models.split(","):
        report.step(model)
        try:
            network = Network.of(model, described, in_flight)
        except BadInput as error:
            if model not in TRAINED:
                raise
            left_out[model] = str(error)
            continue
        with contest(network, described, names, interpreters, report.glance, quick=quick) as sides_of_it:
            rounds = tuple(sides_of_it.rounds(count, seconds, report.glance))
            left_out |= {name: f"{model}: {why}" for name, why in sides_of_it.left_out.items()}
            if not rounds[0]:
                raise BadInput(f"--sides {sides}: none of them is there: {'; '.join(left_out.values())}")
            raced.append(Raced(model, rounds, len(network.cores), sides_of_it.plans))
        for name, row_of in ((file, Raced.row), (f"{file}_cpu", Raced.cpu_row)):
            rows = [row_of(network, side) for network in raced for side in network.sides]
            report.save_by("model", rows, name, add=add)
    if raced:
        _show(raced, machine, report)
        print(f"written to {report.folder / file}.csv, {report.folder / file}_cpu.csv")
    for name, why in left_out.items():
        print(f"race: {name} is left out: {why}", file=sys.stderr)


def versions(servers: Sequence[str], interpreters: Mapping[str, str]) -> dict[str, str]:
    known = {_OPENVINO: version_of(_OPENVINO)} if find_spec(_OPENVINO) else {}
    return {**known, **{name: version(name, interpreters[name]) for name in servers}}


def _file(machine: str, name: str) -> str:
    """File name of results: `name` for this host as it is, other names for other machines and for parts of the race."""
    by_machine = "" if machine == "this-machine" else machine.rpartition("/")[2].removesuffix(".toml")
    return "_".join(part for part in ("race", by_machine, name) if part)


def _show(raced: Sequence[Raced], machine: str, report: Report) -> None:
    for network in raced:
        rows = [{name: value for name, value in network.row(side).items() if name != "model"} for side in network.sides]
        report.show(f"{network.model}, {machine}: wall time per frame at saturation", rows)
    report.show(
        "CPU time per frame, medians", [_medians(network.cpu_row(side)) for network in raced for side in network.sides]
    )


def _medians(row: Row) -> Row:
    return {name: written(value.median) if isinstance(value, Spread) else value for name, value in row.items()}
