"""All ways to serve a network on the same cores, started and ready: sides of a race that take turns.

- `daemon_shared`, `daemon_ipc`, `daemon_tcp`: the daemon with its own Python client: with shared memory over an ipc
  endpoint, and without over ipc and TCP. One daemon is tuned; that behind TCP gets its plan. They may use any installed
  engine.
- `daemon_onnxruntime`, `daemon_single`: as `daemon_shared`, with ONNX Runtime only, and with no frames that share a
  run; tuned separately.
- `daemon_http`, `daemon_http_shared`: the same over HTTP, with the Open Inference Protocol: frames as raw bytes over
  TCP, or in a file of shared memory that is named over a UNIX socket. The client is that of the servers.
- `daemon_grpc`: the same over gRPC, with raw contents and a client as MLServer's.
- plain engines in a separate process, without a daemon or client: see `engine_process`.
- servers with two workers, each with a session of ONNX Runtime on one thread, and a client: see `benchmarks/servers`;
  and the same with batching of their own, see `batching`.

Clients are separate processes with the same number of frames in flight.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from benchmarks.report.results import in_turns
from benchmarks.rigs.batching import BATCHING, Batching, best_batching, open_batch
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.control import live_plan, set_live, tune
from benchmarks.rigs.daemons import Rig, profiled
from benchmarks.rigs.engine_process import HUGE, HUGE_PAGES, PLAIN
from benchmarks.rigs.resources import cpu_time, whole_cpu_s
from benchmarks.rigs.servers import SERVERS, awake, running, stopped
from shisha_rt.cli.drive.child_daemon import ChildDaemon, child_daemon
from shisha_rt.client import Client
from shisha_rt.errors import BadInput, Failure
from shisha_rt.machine.machine import Machine
from shisha_rt.model.zoo import zoo_path
from shisha_rt.plan.plan import Plan
from shisha_rt.tensors import NUMPY_OF
from tests.commands import command_of


class Way(NamedTuple):
    """How a daemon is asked: the transport, whether the client shares memory, and an option of the daemon, if any."""

    transport: str
    share: bool
    option: str = ""

    @property
    def daemon(self) -> str:
        """Key of the daemon; sides with the same key share one."""
        return f"{'tcp' if self.transport == 'tcp' else 'ipc'}{self.option}"


DAEMON: Final[Mapping[str, Way]] = {
    "daemon_shared": Way("ipc", share=True),
    "daemon_onnxruntime": Way("ipc", share=True, option="--engine=onnxruntime"),
    "daemon_single": Way("ipc", share=True, option="--batch=1"),
    "daemon_ipc": Way("ipc", share=False),
    "daemon_tcp": Way("tcp", share=False),
    "daemon_http": Way("http", share=False),
    "daemon_http_shared": Way("http", share=True),
    "daemon_grpc": Way("grpc", share=False),
}
SIDES: Final = (*DAEMON, *PLAIN, *SERVERS, *BATCHING)

Spent = Mapping[str, float]
"""CPU seconds by component."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A side's burst: wall seconds per frame, CPU seconds per frame, and the share of cores that other sides used."""

    frame_s: float
    cpu_s: Spent
    others: float


Round = Mapping[str, Reading]
Tell = Callable[[str], None]
"""Called with a description of what is being done."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network that is served. `inputs`: each with `name`, `shape`, `datatype`, and `dtype` of numpy; `cleaned`: the
    folder of the cleaned model; `in_flight`: frames that each client keeps in flight.
    """

    model: str
    path: Path
    cleaned: Path
    inputs: Sequence[Mapping[str, Any]]
    cores: Sequence[int]
    in_flight: int

    @classmethod
    def of(cls, model: str, machine: Machine, in_flight: int = IN_FLIGHT) -> Network:
        """Prepare a network, with all that a daemon would measure first. Raises BadInput."""
        compiled = profiled(model, machine).compiled
        inputs = [
            {
                "name": tensor.name,
                "shape": tensor.shape,
                "datatype": tensor.datatype,
                "dtype": NUMPY_OF[tensor.datatype].str,
            }
            for tensor in compiled.model.graph.inputs
        ]
        cores = [core for place in machine.places for core in place.cores]
        return cls(model, zoo_path(model, print), compiled.model_folder, inputs, cores, in_flight)


@dataclass(frozen=True, slots=True)
class Side:
    """`asked`: the process that sends frames, or runs them itself. `root`: the same for sides that share processes.

    `keeper`: of a server's processes, see `awake`.
    """

    name: str
    root: str
    asked: ChildProcess
    spent: Callable[[], Spent]
    keeper: ChildProcess | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """`left_out`: reasons, by side. `plans`: of daemons, and how servers batch, by side."""

    model: str
    sides: Sequence[Side]
    cores: int
    plans: Mapping[str, str]
    left_out: Mapping[str, str]

    def rounds(self, count: int, seconds: float, tell: Tell) -> Iterator[Round]:
        """Run rounds in which all sides take turns; each round begins with another side."""
        for number, turn in enumerate(in_turns(self.sides, count)):
            readings = {}
            for side in turn:
                tell(f"{self.model}: round {number + 1} of {count}, {side.name}")
                with awake(side.keeper):
                    readings[side.name] = self._turn(side, seconds)
            yield readings

    def _turn(self, side: Side, seconds: float) -> Reading:
        others = {other.root: other for other in self.sides if other.root != side.root}.values()
        others_s = -sum(_total(other) for other in others)
        before, began_s = side.spent(), time.monotonic()
        burst = side.asked.ask(seconds=seconds)
        after, took_s = side.spent(), time.monotonic() - began_s
        others_s += sum(_total(other) for other in others)
        frames = burst["total_frames"]
        cpu_s = {what: (after[what] - before[what]) / frames for what in after}
        return Reading(burst["frame_s"], cpu_s, others_s / took_s / self.cores)


def _total(side: Side) -> float:
    return sum(side.spent().values())


@contextlib.contextmanager
def contest(
    network: Network,
    machine: Machine,
    names: Sequence[str],
    interpreters: Mapping[str, str],
    tell: Tell,
    *,
    quick: bool,
) -> Iterator[Contest]:
    """Start the possible sides among `names`, with tuned daemons (`rigs.control`). `interpreters`: by server."""
    with Rig() as rig:
        plans: dict[str, str] = {}
        sides: list[Side] = []
        left_out: dict[str, str] = {}
        if wanted := [name for name in DAEMON if name in names]:
            tell(f"{network.model}: tuning the daemon")
            plans, sides = _daemons(rig, network, machine, wanted, quick=quick)
        for name in names:
            if name in DAEMON:
                continue
            tell(f"{network.model}: starting {name}")
            if name.startswith("openvino") and find_spec("openvino") is None:
                left_out[name] = "OpenVINO is not installed: expected the extra `openvino`"
                continue
            try:
                if name in PLAIN:
                    sides.append(_engine(rig, network, name))
                elif name in BATCHING:
                    side, plans[name] = _batching_server(rig, network, name, interpreters[BATCHING[name]])
                    sides.append(side)
                else:
                    sides.append(_server(rig, network, name, name, network.path, interpreters[name]))
            except (BadInput, Failure) as failure:
                left_out[name] = str(failure)
        yield Contest(network.model, sides, len(network.cores), plans, left_out)


@dataclass(frozen=True, slots=True)
class _Served:
    daemon: ChildDaemon
    control: Client
    workers: Sequence[int]

    def spent(self) -> Spent:
        cpu = cpu_time(self.daemon.pid)
        return {"workers": sum(map(whole_cpu_s, self.workers)), "loop": cpu.main_s, "I/O threads": cpu.rest_s}

    def spent_with_http(self) -> Spent:
        return {**self.spent(), "front": sum(map(whole_cpu_s, self._http()))}

    def _http(self) -> list[int]:
        children = psutil.Process(self.daemon.pid).children()
        return [child.pid for child in children if "shisha_rt.http.process" in command_of(child)]


def _daemons(
    rig: Rig, network: Network, machine: Machine, names: Sequence[str], *, quick: bool
) -> tuple[dict[str, str], list[Side]]:
    """Start the daemons that the sides `names` need; return their plans, too.

    The first daemon with an option is tuned, with frames of its first side; others get its plan.
    """
    folder, sides = rig.folder(), list[Side]()
    served: dict[str, _Served] = {}
    plans: dict[str, Plan] = {}
    for name in names:
        way = DAEMON[name]
        begins = way.daemon not in served
        if begins:
            served[way.daemon] = _daemon(rig, network, machine, folder, way)
        daemon = served[way.daemon]
        client = _client(rig, network, daemon.daemon, way)
        if begins and way.option not in plans:
            tune(daemon.control, client, quick=quick)
            plans[way.option] = live_plan(daemon.control)
        elif begins:
            set_live(daemon.control, plans[way.option])
        spent = daemon.spent_with_http if way.transport in ("http", "grpc") else daemon.spent
        sides.append(Side(name, way.daemon, client, _with_client(spent, client.pid)))
    return {name: str(plans[DAEMON[name].option]) for name in names}, sides


def _daemon(rig: Rig, network: Network, machine: Machine, folder: Path, way: Way) -> _Served:
    options = ["--machine", machine.source, "--strategy", "guided", "--objective", "throughput", "--fresh"]
    options += [way.option] if way.option else []
    endpoint = "tcp://127.0.0.1:0"
    if way.transport != "tcp":
        endpoint = f"ipc://{folder}/{way.daemon}"
        options += ["--http", "127.0.0.1:0", "--http", f"unix:{folder}/{way.daemon}-http", "--http-shared-memory"]
        options += ["--grpc", "127.0.0.1:0"]
    daemon = rig.enter_context(child_daemon(f"zoo:{network.model}", *options, endpoint=endpoint))
    control = rig.control(daemon.endpoint)
    return _Served(daemon, control, [place["pid"] for place in control.status()["places"]])


def _client(rig: Rig, network: Network, daemon: ChildDaemon, way: Way) -> ChildProcess:
    if way.transport == "http":
        tcp, unix = daemon.http
        to = {"unix": unix.removeprefix("unix:")} if way.share else {"ports": [int(tcp.rpartition(":")[2])]}
        options = {
            "shared": way.share,
            "model": network.model,
            "inputs": network.inputs,
            "in_flight": network.in_flight,
        }
        return rig.child("http_process", **to, **options)
    if way.transport == "grpc":
        to = {"address": daemon.grpc[0], "model": network.model}
        return rig.child("grpc_process", **to, inputs=network.inputs, in_flight=network.in_flight)
    client = rig.child("client_process", endpoint=daemon.endpoint, in_flight=network.in_flight, share=way.share)
    if way.share and not client.ready["sharing"]:
        raise Failure("client and daemon share no memory, expected them to")
    return client


def _with_client(server: Callable[[], Spent], pid: int) -> Callable[[], Spent]:
    def spent() -> Spent:
        cpu = cpu_time(pid)
        return {**server(), "client": cpu.main_s, "client's threads": cpu.rest_s}

    return spent


def _engine(rig: Rig, network: Network, name: str) -> Side:
    engine = plain_engine(rig, network, name)
    return Side(name, name, engine, lambda: {"workers": whole_cpu_s(engine.pid)})


def plain_engine(rig: Rig, network: Network, name: str) -> ChildProcess:
    """Start one of `engine_process.PLAIN`."""
    paths = {"path": str(network.path), "cleaned": str(network.cleaned)}
    enter = ("env", HUGE_PAGES) if name in HUGE else ()
    rival = HUGE.get(name, name)
    return rig.child("engine_process", enter=enter, rival=rival, **paths, inputs=network.inputs, cores=network.cores)


def _batching_server(rig: Rig, network: Network, side: str, python: str) -> tuple[Side, str]:
    """A server with the setting that suits it best, and that setting."""
    name, path = BATCHING[side], open_batch(network.cleaned, rig.folder() / "open.onnx")
    setting = best_batching(name, python, path, network.inputs, len(network.cores), network.in_flight)
    return _server(rig, network, side, name, path, python, setting), str(setting)


def _server(
    rig: Rig, network: Network, side: str, name: str, path: Path, python: str, batching: Batching | None = None
) -> Side:
    limits = batching._asdict() if batching else {}
    started = running(name, python, path, network.inputs, len(network.cores), network.in_flight, (), **limits)
    server = rig.enter_context(stopped(started))

    def spent() -> Spent:
        """Processes come and go with some servers: what one that has gone spent is not counted."""
        spent_s = {"workers": 0.0, "front": 0.0}
        for process in psutil.Process(server.keeper.pid).children(recursive=True):
            with contextlib.suppress(OSError):
                spent_s["workers" if process.pid in server.workers else "front"] += whole_cpu_s(process.pid)
        return spent_s

    return Side(side, side, server.client, _with_client(spent, server.client.pid), server.keeper)
