"""The cost of a hop to another host, by transport: `python -m benchmarks cluster hop`.

A part's tensor goes to the other host, is copied into a slot there, goes back, and is copied into its slot: half of
what a remote place does for a part, that of the proxy and the remote worker. The reference is `local`: the same
descriptors to a worker on the daemon's host, to which no tensor has to go. `rigs/hop_process.py` describes the sides.

- `one µs`: from sending a part until it is back, one at a time. `many µs`: wall time for each, eight in flight.
- `CPU µs`: for each of those eight, of both ends; with Ray of all its processes, their background work included.

Over loopback, and over a slow link between network namespaces of this host; the CPU time that carries the link's
packets is not in the figures, but uses the same cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, spreads
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.hop_process import WAYS
from benchmarks.rigs.raylets import lacking_ray, raylets
from benchmarks.rigs.resources import family_cpu_s
from benchmarks.rigs.slow_link import FarHost, lacking, slow_link
from shisha_rt.errors import BadInput

_KIB: Final = 1024
SIZES: Final = (_KIB, 16 * _KIB, 64 * _KIB, 256 * _KIB, _KIB**2, 4 * _KIB**2)
_IN_FLIGHT: Final = 8
_RESOURCE: Final = "hop"
_LOOPBACK, _SLOW = "loopback", "1 Gbit/s, 1 ms"


@dataclass(frozen=True, slots=True)
class _Side:
    """`near`: the process that sends. Its CPU time counts and that of `keepers`, with all processes started by them."""

    way: str
    near: ChildProcess
    keepers: Sequence[int]

    def hop(self, size_bytes: int, seconds: float) -> dict[str, float]:
        single = self.near.ask(size_bytes=size_bytes, seconds=seconds / 2, in_flight=1)
        before_s = self._cpu_s()
        many = self.near.ask(size_bytes=size_bytes, seconds=seconds, in_flight=_IN_FLIGHT)
        cpu_s = (self._cpu_s() - before_s) / many["hops"]
        return {"one µs": 1e6 * single["latency_s"], "many µs": 1e6 * many["frame_s"], "CPU µs": 1e6 * cpu_s}

    def _cpu_s(self) -> float:
        return sum(map(family_cpu_s, (self.near.pid, *self.keepers)))


def hop(
    seconds: Annotated[float, typer.Option(min=0.05, help="For each side and size in each round.")] = 0.5,
    count: Annotated[int, typer.Option("--rounds", min=1, help="Rounds.")] = 3,
) -> None:
    """What a hop costs, by what carries it, over loopback and over a slow link."""
    if why := lacking() or lacking_ray():
        raise BadInput(f"cluster hop: this host lacks {why}")
    report, rows = Report("hop"), list[Row]()
    with slow_link(1) as link:
        report.step(_LOOPBACK)
        with Rig() as rig:
            sides = list(_sides(rig, WAYS, "127.0.0.1", None))
            rows += _rows(_LOOPBACK, sides, seconds, count, report)
        report.step(_SLOW)
        ways = [way for way in WAYS if way != "local"]
        with Rig() as rig:
            sides = list(_sides(rig, ways, link.address, link.hosts[0]))
            rows += _rows(_SLOW, sides, seconds, count, report)
    for over in (_LOOPBACK, _SLOW):
        report.show(f"a hop over {over}", [row for row in rows if row["over"] == over])
    report.save(rows, "cluster_hop")


def _rows(over: str, sides: Sequence[_Side], seconds: float, count: int, report: Report) -> Iterator[Row]:
    for size_bytes in SIZES:
        kib = size_bytes // _KIB
        hops = {side.way: partial(side.hop, size_bytes, seconds) for side in sides}
        rounds = report.rounds(f"{over}: {kib} KiB", hops, count)
        for way in hops:
            yield {"over": over, "KiB": kib, "carrier": way, **spreads([each[way] for each in rounds])}


def _sides(rig: Rig, ways: Sequence[str], address: str, host: FarHost | None) -> Iterator[_Side]:
    """Start all sides. `address`: this host's; `host`: the other host; None: all on this one."""
    enter, listen = (host.enter, host.address) if host else ((), address)
    cluster, keepers = "", []
    if any(way.startswith("ray") for way in ways):
        ray = rig.enter_context(raylets(address if host else None, resources=None if host else {_RESOURCE: 1}))
        cluster, keepers = ray.address, [ray.head.process.pid]
        if host is not None:
            keepers.append(ray.add(host, resources={_RESOURCE: 1}).process.pid)
    to = {"address": listen, "enter_far": list(enter), "cluster": cluster, "resource": _RESOURCE}
    for way in ways:
        yield _Side(way, rig.child("hop_process", way=way, **to), keepers if way.startswith("ray") else ())
