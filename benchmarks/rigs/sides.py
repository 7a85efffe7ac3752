"""A network served in several ways on the same cores, and plain engines: sides that take turns."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.profiled import profiled
from benchmarks.rigs.served import IN_FLIGHT
from shisha_rt.errors import Failure
from shisha_rt.machine.machine import Machine
from shisha_rt.model.zoo import zoo_path

_BURST_S: Final = 2.0
_MOST_BURSTS: Final = 60

Round = Mapping[str, Mapping[str, Any]]
"""Results of each side's burst, by its name."""


@dataclass(frozen=True, slots=True)
class Side:
    """One way to serve the network, and the order for its bursts (see `daemon_process` and `engine_process`)."""

    name: str
    process: ChildProcess
    order: Mapping[str, Any]

    def burst(self, seconds: float) -> Mapping[str, Any]:
        return self.process.ask(seconds=seconds, **self.order)


@contextlib.contextmanager
def sides(
    model: str,
    machine: Machine,
    daemons: Mapping[str, Mapping[str, Any]],
    rivals: Sequence[str],
    order: Mapping[str, Any],
    *,
    clients: bool = False,
) -> Iterator[list[Side]]:
    """Start all sides, with tuned daemons. `daemons`: planning options by name.

    `clients`: for each daemon there is one more side, `NAME_client`: the same daemon, asked by a program over a socket.
    """
    ready = profiled(model, machine, "guided")
    path = zoo_path(model, print)
    inputs = [
        {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
        for tensor in ready.compiled.model.graph.inputs
    ]
    cores = [core for place in machine.places for core in place.cores]
    with contextlib.ExitStack() as closing:
        found = []
        for name, planning in daemons.items():
            process, told = closing.enter_context(
                child_process(
                    "benchmarks.rigs.daemon_process",
                    model=f"zoo:{model}",
                    machine=machine.source,
                    endpoint="tcp://127.0.0.1:0",
                    planning={"strategy": "guided", "fresh": True, **planning},
                )
            )
            side = Side(name, process, order)
            _tune(side)
            found.append(side)
            if clients:
                client, _ = closing.enter_context(
                    child_process("benchmarks.rigs.client_process", endpoint=told["endpoint"], in_flight=IN_FLIGHT)
                )
                found.append(Side(f"{name}_client", client, {}))
        for rival in rivals:
            process, _ = closing.enter_context(
                child_process("benchmarks.rigs.engine_process", rival=rival, path=str(path), inputs=inputs, cores=cores)
            )
            found.append(Side(rival, process, {}))
        yield found


def _tune(side: Side) -> None:
    """Send frames until the tuner has settled."""
    for _ in range(_MOST_BURSTS):
        if side.burst(_BURST_S)["tuner"] == "watching":
            return
    raise Failure(f"{side.name}: the tuner has not settled in {_MOST_BURSTS * _BURST_S:g} s")


def rounds(sides: Sequence[Side], count: int, seconds: float) -> list[Round]:
    """Results of rounds, in which all sides take turns; each round begins with another side."""
    turns = itertools.cycle(range(len(sides)))
    found: list[Round] = []
    for _ in range(count):
        first = next(turns)
        found.append({side.name: side.burst(seconds) for side in (*sides[first:], *sides[:first])})
    return found
