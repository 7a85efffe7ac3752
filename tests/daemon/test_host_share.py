"""A daemon's share of the host: which cores it holds, and whose use of them counts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from shisha_rt.daemon import host_share
from shisha_rt.daemon.host_share import READ_EVERY_S, HostShare
from shisha_rt.machine.host.cpu_use import CpuReading
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.machine import Machine, Memory, Place

CORE = min(os.sched_getaffinity(0))
PLACE = Place("one", (CORE,), 1, threads=1, speed=1.0, rank=1, memory="ram")


def test_a_daemon_whose_places_are_given_holds_their_cores_once_they_are_free(tmp_path: Path) -> None:
    """Else nobody has them once the host process, which may have leased them meanwhile, has died."""
    other, own = CoreLeases(tmp_path), CoreLeases(tmp_path)
    assert other.take(CORE)
    share = HostShare(Machine("one", "", (Memory("ram"),), (PLACE,)), own, is_dealt=True)
    share.withhold(frozenset())

    def look(now_s: float) -> tuple[set[int], set[int]]:
        assert share.look(now_s, lambda: ((), ()), lambda _: True) is None
        return {*share.shared}, {*own.cores}

    assert look(0.0) == ({CORE}, set())
    other.close()
    assert look(READ_EVERY_S) == (set(), {CORE})
    share.close()


def test_who_uses_the_cores_of_another_model_takes_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What neighbours in a host process did passed for that of other programs: `status` said so, and tuning waited."""
    other = CORE + 1
    places = (PLACE, Place("other", (other,), 1, threads=1, speed=1.0, rank=1, memory="ram"))
    busy_s = {CORE: 0.0, other: 0.0}

    def read(cores: Collection[int], _: Iterable[int], at_s: float, *, clients: Iterable[int]) -> CpuReading:
        return CpuReading(at_s, len(cores), sum(busy_s[core] for core in cores), 0.0)

    monkeypatch.setattr(host_share, "read_cpu_use", read)
    share = HostShare(Machine("two", "", (Memory("ram"),), places), CoreLeases(tmp_path), is_dealt=True)
    share.withhold(frozenset({other}))
    now_s = 0.0

    def look_while(core: int) -> float:
        """The ratio once somebody has kept a core busy for some time."""
        nonlocal now_s
        for _ in range(3):
            now_s += READ_EVERY_S
            busy_s[core] += READ_EVERY_S
            for _ in range(2):  # the first is for the limits
                share.look(now_s, lambda: ((), ()), lambda _: True)
        return share.others_ratio

    assert look_while(other) == 0
    assert look_while(CORE) == 1
    share.withhold(frozenset())
    assert look_while(other) == 0.5
    share.close()
