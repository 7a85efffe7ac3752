"""A daemon with places on the raylets of one host, for benchmarks of places on other hosts."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.rigs.control_group import lacking_shares
from benchmarks.rigs.raylets import Raylet, Raylets, lacking_ray, raylets
from benchmarks.rigs.slow_link import SlowLink, lacking, slow_link
from shisha_rt.cli.drive.child_daemon import ChildDaemon, child_daemon
from shisha_rt.errors import BadInput
from tests.commands import command_of

CORES: Final = 0.4
"""Cores of each host, so that three of them and all else fit on two cores."""
_ACTOR: Final = "ray::FarHost"
_OURS: Final = ("stages.far", "stages.worker")
_GONE_WITHIN_S: Final = 15.0


def check_host(benchmark: str) -> None:
    """Raises BadInput if this host lacks what `far_hosts` needs."""
    if why := lacking() or lacking_shares() or lacking_ray():
        raise BadInput(f"{benchmark}: this host lacks {why}")


@dataclass(slots=True)
class FarHosts:
    """`count` hosts with a raylet each: the first on the head's host, the others behind slow links."""

    link: SlowLink
    cluster: Raylets
    raylets: list[Raylet]

    def again(self, number: int) -> None:
        """Start another raylet on a host whose raylet has died."""
        self.raylets[number] = self._add(number)

    def _add(self, number: int) -> Raylet:
        host = self.link.hosts[number - 1] if number else None
        return self.cluster.add(host, cpus=4, resources={resource(number): 1, "whole": 1}, cores=CORES)

    def actors(self, number: int) -> list[psutil.Process]:
        """The processes of places' actors on a host."""
        return [process for process in self._all(number) if " ".join(command_of(process)).startswith(_ACTOR)]

    def left(self) -> list[str]:
        """Processes of places that are left on all hosts, after some time for them to end."""
        until_s = time.monotonic() + _GONE_WITHIN_S
        while (titles := self._ours()) and time.monotonic() < until_s:
            time.sleep(0.2)
        return titles

    def _ours(self) -> list[str]:
        titles = [" ".join(command_of(process)) for number in range(len(self.raylets)) for process in self._all(number)]
        return [title for title in titles if title.startswith(_ACTOR) or any(name in title for name in _OURS)]

    def _all(self, number: int) -> list[psutil.Process]:
        return psutil.Process(self.raylets[number].process.pid).children(recursive=True)


def resource(number: int) -> str:
    """Name of a resource that only this host has."""
    return f"host{number + 1}"


@contextlib.contextmanager
def far_hosts(count: int) -> Iterator[FarHosts]:
    with slow_link(max(1, count - 1)) as link, raylets(link.address) as cluster:
        hosts = FarHosts(link, cluster, [])
        for number in range(count):
            hosts.raylets.append(hosts._add(number))
        yield hosts


@contextlib.contextmanager
def far_daemon(
    model: str,
    hosts: FarHosts,
    options: Sequence[str],
    *,
    local: bool = False,
    memory_bytes: int | None = None,
    endpoint: str = "tcp://127.0.0.1:0",
) -> Iterator[ChildDaemon]:
    """Start a daemon with a place on each of the hosts; `local`: also one on this host's first core, which others use,
    too.
    """
    places = [
        f'name = "far{number + 1}"\nhost = "ray"\nresources = {{ {resource(number)} = 1 }}\n'
        for number in range(len(hosts.raylets))
    ]
    if local:
        places.append('name = "near"\ncores = [0]\nshared = true\nspeed = 0.4\n')
    room = "" if memory_bytes is None else f"memory_bytes = {memory_bytes}\n"
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder) / "hosts.toml"
        machine.write_text("".join(f"[[place]]\nrank = 1\n{place}{room}\n" for place in places))
        with child_daemon(
            model, "--machine", str(machine), "--ray", hosts.cluster.address, "--fresh", *options, endpoint=endpoint
        ) as daemon:
            yield daemon
