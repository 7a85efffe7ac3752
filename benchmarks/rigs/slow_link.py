"""Simulated hosts behind slow links, on one host: network namespaces, and a process that carries their packets.

Each namespace has a TUN device, and so has this host: a hub between them, which is a process of its own, reads packets
from one device and writes them to another as late as a link of that rate and delay would deliver them. Rate and delay
can be changed while it runs. No kernel module for delays is needed (`netem` is missing on many hosts); packets are as
large as devices allow, so one process carries some Gbit/s.

Namespaces, devices and addresses have no names and do not persist: they belong to the process, and vanish with it and
with the processes in them, however it ends. So there is nothing to clean up.

Settings of the process: `count` of namespaces, `rate_bits_per_s`, one-way `delay_s`. A line may change rate and delay
for `hosts`, by number; each line is answered with totals. A packet waits until its link has sent all packets before it,
and then for the delay; a packet that finds the buffer full is dropped, as by a switch. The process ends with its input.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import ipaddress
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.rigs.child_process import Child, ChildProcess, child_process, say

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
        totals: list[dict[str, int]] = self.process.ask()["carried"]
        return totals


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
        "benchmarks.rigs.slow_link", count=count, rate_bits_per_s=rate_bits_per_s, delay_s=delay_s
    ) as process:
        ready = process.ready
        hosts = tuple(
            FarHost(address, ("nsenter", f"--net=/proc/{process.pid}/fd/{namespace}"))
            for address, namespace in zip(ready["addresses"], ready["namespaces"], strict=True)
        )
        yield SlowLink(ready["address"], hosts, process)


# --- the process ------------------------------------------------------------------------------------------------------


_BUFFER_BYTES: Final = 4 << 20
_MTU: Final = 65_000
_AT_ONCE: Final = 16  # packets of one device before the other devices get their turn
_NETWORKS: Final = ipaddress.IPv4Network("198.18.0.0/15")  # reserved for benchmarks of networks by RFC 2544
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_TIMERSLACK: Final = 29
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_DESTINATION: Final = slice(16, 20)  # of an IPv4 packet

_libc: Final = ctypes.CDLL(None, use_errno=True)


class Way:
    """One direction of a link."""

    def __init__(self, rate_bits_per_s: float, delay_s: float) -> None:
        self.rate_bits_per_s = rate_bits_per_s
        self.delay_s = delay_s
        self.carried_bytes = self.dropped = 0
        self._free_at_s = 0.0
        self._queued_bytes = 0
        self._queue: deque[tuple[float, bytes]] = deque()

    def take(self, packet: bytes, now_s: float) -> None:
        if self._queued_bytes + len(packet) > _BUFFER_BYTES:
            self.dropped += 1
            return
        self._free_at_s = max(self._free_at_s, now_s) + 8 * len(packet) / self.rate_bits_per_s
        self._queued_bytes += len(packet)
        self._queue.append((self._free_at_s + self.delay_s, packet))

    @property
    def due_s(self) -> float:
        """When the next packet is delivered; inf if there is none."""
        return self._queue[0][0] if self._queue else float("inf")

    def out(self, now_s: float) -> Iterator[bytes]:
        while self.due_s <= now_s:
            _, packet = self._queue.popleft()
            self._queued_bytes -= len(packet)
            self.carried_bytes += len(packet)
            yield packet


class Hub:
    """`near`: this host's device; `far`: by remote address, its device and the two directions, to it and back."""

    def __init__(self, near: int, far: dict[bytes, tuple[int, Way, Way]]) -> None:
        self._near = near
        self._far = far
        self._back = {device: back for device, _, back in far.values()}

    def run(self) -> None:
        """Run until standard input ends."""
        devices = [self._near, *self._back]
        while True:
            next_s = min(min(there.due_s, back.due_s) for _, there, back in self._far.values())
            wait_s = None if next_s == float("inf") else max(0.0, next_s - time.monotonic())
            readable, _, _ = select.select([0, *devices], [], [], wait_s)
            for device in readable:
                if device == 0:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self._obey(json.loads(line))
                else:
                    self._read(device)
            self._release()

    def _read(self, device: int) -> None:
        now_s = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            for _ in range(_AT_ONCE):
                packet = os.read(device, _MTU + 100)
                if packet[0] >> 4 != 4:
                    continue
                if device != self._near:
                    self._back[device].take(packet, now_s)
                elif there := self._far.get(packet[_DESTINATION]):
                    there[1].take(packet, now_s)

    def _release(self) -> None:
        now_s = time.monotonic()
        for _, _, back in self._far.values():
            for packet in back.out(now_s):
                if onward := self._far.get(packet[_DESTINATION]):
                    onward[1].take(packet, now_s)
                else:
                    self._write(self._near, packet)
        for device, there, _ in self._far.values():
            for packet in there.out(now_s):
                self._write(device, packet)

    def _write(self, device: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):  # it has no room, or refuses what is no packet
            os.write(device, packet)

    def _obey(self, order: dict[str, Any]) -> None:
        ways = list(self._far.values())
        for number in order.get("hosts", ()):
            for way in ways[number][1:]:
                way.rate_bits_per_s, way.delay_s = order["rate_bits_per_s"], order["delay_s"]
        carried = [
            {
                "there_bytes": there.carried_bytes,
                "back_bytes": back.carried_bytes,
                "dropped": there.dropped + back.dropped,
            }
            for _, there, back in ways
        ]
        say(carried=carried)


def child(count: int, rate_bits_per_s: float, delay_s: float) -> Child:
    _libc.prctl(_PR_SET_TIMERSLACK, 1000)  # packets leave within microseconds of their time
    gc.disable()
    network = _free_network()
    address, *others = [network[number] for number in range(1, count + 2)]
    name = f"shisha{os.getpid()}"
    near = _device(name)
    _configure(name, f"{address}/{network.prefixlen}")
    far: dict[bytes, tuple[int, Way, Way]] = {}
    namespaces = []
    for other in others:
        with _new_namespace() as namespace:
            device = _device(name)
            _ip("link", "set", "lo", "up")
            _configure(name, f"{other}/{network.prefixlen}")
        there, back = (Way(rate_bits_per_s, delay_s) for _ in range(2))
        far[other.packed] = device, there, back
        namespaces.append(namespace)
    say(address=str(address), addresses=[str(other) for other in others], namespaces=namespaces)
    Hub(near, far).run()
    yield from ()


def _free_network() -> ipaddress.IPv4Network:
    """A network without an address of this host. The first candidate depends on the pid, as others may search, too."""
    devices = json.loads(subprocess.run(["ip", "-json", "address"], check=True, capture_output=True).stdout)
    taken = [ipaddress.ip_address(address["local"]) for device in devices for address in device["addr_info"]]
    networks = list(_NETWORKS.subnets(new_prefix=24))
    first = os.getpid() % len(networks)
    return next(
        network
        for network in (*networks[first:], *networks[:first])
        if not any(address in network for address in taken)
    )


def _device(name: str) -> int:
    """Open a TUN device in the present namespace; it exists as long as its descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return device


def _configure(name: str, address: str) -> None:
    _ip("address", "add", address, "dev", name)
    _ip("link", "set", name, "mtu", str(_MTU), "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@contextlib.contextmanager
def _new_namespace() -> Iterator[int]:
    """Context in which this thread is in a new namespace. That exists as long as its descriptor, or a process in it."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(_CLONE_NEWNET))
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield namespace
        finally:
            _check(_libc.setns(own, _CLONE_NEWNET))
    finally:
        os.close(own)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "no network namespace can be made or entered")
