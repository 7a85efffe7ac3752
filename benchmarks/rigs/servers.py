"""Other servers and their clients, each under the interpreter for which it is installed."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import ROOT
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.servers.network import SETTINGS
from shisha_rt.errors import BadInput, Failure

_START_S: Final = 90.0
_LOOK_EVERY_S: Final = 0.2
_AWAKE_S: Final = 0.2
_WARM_UP_S: Final = 0.3
LONG_MS: Final = 60_000
_HTTP: Final = "benchmarks.rigs.http_process"
ServerPython = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]PATH", help="The interpreter that has the servers, or that one; or this one."),
]


@dataclass(frozen=True, slots=True)
class Server:
    """`module`: runs the server; `needs`: the package that must be importable; `client`: module of its client.

    `own_client`: the client runs under the server's interpreter, too.
    """

    module: str
    needs: str
    client: str = _HTTP
    own_client: bool = False


SERVERS: Final[Mapping[str, Server]] = {
    "mosec": Server("benchmarks.servers.mosec_server", "mosec"),
    "litserve": Server("benchmarks.servers.litserve_server", "litserve"),
    "ray_serve": Server("benchmarks.servers.ray_server", "ray.serve"),
    "mlserver": Server(
        "benchmarks.servers.mlserver_server", "mlserver", "benchmarks.servers.mlserver_client", own_client=True
    ),
}


@dataclass(frozen=True, slots=True)
class Running:
    """`keeper`: of its processes, see `server_process`. `port`: its first. `noted`: where workers record their pids.

    `further`: clients of networks other than the first, by name.
    """

    keeper: ChildProcess
    client: ChildProcess
    port: int
    noted: Path
    further: Mapping[str, ChildProcess]

    @property
    def workers(self) -> frozenset[int]:
        """The processes that compute or have computed frames."""
        return frozenset(int(file.name) for file in self.noted.iterdir() if file.name.isdigit())


def pythons(given: Sequence[str]) -> dict[str, str]:
    """Interpreters by server. `given`: `PATH` for all, `NAME=PATH` for one; default: this one. Raises BadInput."""
    interpreters = dict.fromkeys(SERVERS, sys.executable)
    for text in sorted(given, key=lambda argument: "=" in argument):  # those for one server override the one for all
        name, _, path = text.rpartition("=")
        if name and name not in SERVERS:
            raise BadInput(f"--server-python {text}: no such server, expected one of {', '.join(SERVERS)}")
        if not Path(path).is_file():
            raise BadInput(f"--server-python {text}: {path} is no file, expected a Python interpreter")
        interpreters.update(dict.fromkeys([name] if name else SERVERS, path))
    return interpreters


def the_python(name: str, given: Sequence[str] | None) -> str:
    """The interpreter for a server that is needed. Raises BadInput if it has not got it."""
    python = pythons(given or [])[name]
    if (why := missing(name, python)) is not None:
        raise BadInput(f"--server-python: {why}")
    return python


def missing(name: str, python: str) -> str | None:
    """Why an interpreter cannot run a server; None: it can."""
    checked = subprocess.run(
        [python, "-c", f"import numpy, onnxruntime, {SERVERS[name].needs}"], capture_output=True, text=True
    )
    if not checked.returncode:
        return None
    said = checked.stderr.strip().splitlines() or [f"status {checked.returncode}"]
    return f"{said[-1]}: expected the extra `race` for {python}, or --server-python {name}=PATH of another"


def version(name: str, python: str) -> str:
    package = SERVERS[name].needs.partition(".")[0]
    asked = [python, "-c", f"import importlib.metadata as its; print(its.version({package!r}))"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def running(
    name: str,
    python: str,
    path: Path,
    inputs: Sequence[Mapping[str, Any]],
    workers: int,
    in_flight: int,
    cores: Sequence[int] = (),
    **limits: Any,
) -> Iterator[Running]:
    """Start a server that has answered frames, and a client that waits for orders. Raises Failure.

    `inputs`: each with `name`, `shape`, `dtype`. `limits`: `waiting`, `timeout_ms`, `batch`, `delay_ms` and `further`,
    see `network.SETTINGS`. `cores`: to which the server is limited; by default all.
    """
    server = SERVERS[name]
    with contextlib.ExitStack() as closing:
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="race-"))
        noted = Path(folder) / "workers"
        noted.mkdir()
        settings = {"waiting": None, "timeout_ms": LONG_MS, "further": {}, **limits}
        settings |= {"path": str(path), "inputs": inputs, "workers": workers, "folder": str(noted)}
        ports = settings["ports"] = free_ports(3)
        kept_to = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        command = [*kept_to, python, "-m", server.module]
        environment = {SETTINGS: json.dumps(settings), "PYTHONPATH": str(ROOT)}
        keeper = closing.enter_context(
            child_process("benchmarks.rigs.server_process", command=command, environment=environment, folder=folder)
        )
        _await(name, keeper, noted, workers, ports[0])

        def client(inputs: Sequence[Mapping[str, Any]], **named: str) -> ChildProcess:
            to: dict[str, Any] = {"ports": ports, "inputs": inputs, "in_flight": in_flight, **named}
            return closing.enter_context(
                child_process(server.client, python=python if server.own_client else sys.executable, **to)
            )

        others = {model: client(served["inputs"], model=model) for model, served in settings["further"].items()}
        yield Running(keeper, client(inputs), ports[0], noted, others)


@contextlib.contextmanager
def stopped(started: AbstractContextManager[Running]) -> Iterator[Running]:
    """Context with a server that has run for a moment and is stopped until it is `awake`. Raises Failure."""
    with started as server:
        try:
            server.client.ask(seconds=_WARM_UP_S)
        except RuntimeError as error:
            raise Failure(str(error)) from None
        server.keeper.ask(runs=False)
        yield server


@contextlib.contextmanager
def awake(keeper: ChildProcess | None) -> Iterator[None]:
    """Context in which the server's processes run. Otherwise they are stopped, as some use a tenth of the cores when
    idle. None: there is nothing to stop.
    """
    if keeper is None:
        yield
        return
    keeper.ask(runs=True)
    try:
        time.sleep(_AWAKE_S)
        yield
    finally:
        keeper.ask(runs=False)


def _await(name: str, keeper: ChildProcess, noted: Path, workers: int, port: int) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        ended = keeper.ask()["ended"]
        if ended is not None:
            raise Failure(f"{name}: has not come up: {ended}")
        if sum(file.name.isdigit() for file in noted.iterdir()) >= workers:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        time.sleep(_LOOK_EVERY_S)
    raise Failure(f"{name}: has not come up within {_START_S:g} s")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as closing:
        taken = [closing.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in taken]
