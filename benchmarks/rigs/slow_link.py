"""Simulated hosts behind slow links, on one host: network namespaces, and a process that carries their packets.

Each namespace has a TUN device, and so has this host: `slow_link_process` reads packets from one device and writes them
to another as late as a link of that rate and delay would deliver them. Rate and delay can be changed while it runs. No
kernel module for delays is needed (`netem` is missing on many hosts); packets are as large as devices allow, so one
process carries some Gbit/s.

Namespaces, devices and addresses have no names and do not persist: they belong to the process, and vanish with it and
with the processes in them, however it ends. So there is nothing to clean up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.rigs.child_process import ChildProcess, child_process

GIGABIT: Final = 1e9
_TUN: Final = Path("/dev/net/tun")


@dataclass(frozen=True, slots=True)
class FarHost:
    """A namespace with one address. `enter`: a prefix of commands that are to run in it."""

    address: str
    enter: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlowLink:
    """`address`: of this host, as the others see it. Each of `hosts` has its own link, equal in both directions."""

    address: str
    hosts: tuple[FarHost, ...]
    process: ChildProcess

    def set(self, rate_bits_per_s: float, delay_s: float, hosts: Sequence[int] | None = None) -> None:
        """Set rate and one-way delay, for `hosts` or all. Packets in transit keep their times."""
        numbers = range(len(self.hosts)) if hosts is None else hosts
        self.process.ask(rate_bits_per_s=rate_bits_per_s, delay_s=delay_s, hosts=list(numbers))

    def carried(self) -> list[dict[str, int]]:
        """Totals by host: `there_bytes`, `back_bytes`, and `dropped` packets, which found a full buffer."""
        told: list[dict[str, int]] = self.process.ask()["carried"]
        return told


def lacking() -> str | None:
    """What this host lacks for `slow_link`; None: nothing."""
    if os.geteuid():
        return "root: namespaces and TUN devices are made"
    if not _TUN.exists():
        return f"{_TUN}: the kernel's module `tun`"
    needed = {"ip": "iproute2", "nsenter": "util-linux"}
    return next((f"{name}, of {package}" for name, package in needed.items() if shutil.which(name) is None), None)


@contextlib.contextmanager
def slow_link(count: int, rate_bits_per_s: float = GIGABIT, delay_s: float = 1e-3) -> Iterator[SlowLink]:
    """Context with `count` hosts. Needs what `lacking` checks."""
    with child_process(
        "benchmarks.rigs.slow_link_process", count=count, rate_bits_per_s=rate_bits_per_s, delay_s=delay_s
    ) as process:
        told = process.ready
        hosts = tuple(
            FarHost(address, ("nsenter", f"--net=/proc/{process.pid}/fd/{namespace}"))
            for address, namespace in zip(told["addresses"], told["namespaces"], strict=True)
        )
        yield SlowLink(told["address"], hosts, process)
