"""The machine that this host is: places for cores, within quota and leases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shisha_rt.machine.allotment import CpuLimits, HostCore
from shisha_rt.machine.host import this_machine as module
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.host.this_machine import host_in_words, own_cores, this_limits, this_machine
from tests.wording import says

FOUR = frozenset(range(4))


def test_one_unthrottled_place_for_each_core() -> None:
    machine = own_cores(CoreLeases(), CpuLimits(frozenset([2, 0]))).machine
    assert [place.name for place in machine.places] == ["core0", "core2"]
    assert [place.cores for place in machine.places] == [(0,), (2,)]
    assert all((p.threads, p.speed, p.memory, p.shared) == (1, 1.0, "ram", False) for p in machine.places)
    assert machine.spare == frozenset()


def test_by_default_within_the_affinity_mask() -> None:
    cores = {core for place in this_machine().places for core in place.cores}
    assert cores
    assert cores <= os.sched_getaffinity(0) == this_limits().cores


def test_a_quota_takes_the_fastest_cores_and_keeps_as_many_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = {0: 2, 1: 2, 2: 1, 3: 1}
    monkeypatch.setattr(module, "host_cores", lambda cores: tuple(HostCore(core, ranks[core]) for core in cores))
    taken = own_cores(CoreLeases(tmp_path), CpuLimits(FOUR, 1.5))
    assert [place.name for place in taken.machine.usual] == ["core2"]
    assert taken.machine.spare == {"core3"}
    assert taken.shared == frozenset()


def test_daemons_take_cores_that_no_other_has(tmp_path: Path) -> None:
    first_leases, second_leases, third_leases = (CoreLeases(tmp_path) for _ in range(3))
    first, second = (
        own_cores(leases, CpuLimits(frozenset([0, 1]), 1.0)).machine for leases in (first_leases, second_leases)
    )
    assert {place.name for place in (*first.usual, *second.usual)} == {"core0", "core1"}
    last = own_cores(third_leases, CpuLimits(frozenset([0, 1]), 1.0))
    assert (len(last.machine.usual), len(last.shared)) == (1, 1)
    second_leases.close()
    again = own_cores(third_leases, CpuLimits(frozenset([0, 1]), 1.0))
    assert again.shared == frozenset()
    assert again.machine.usual == second.usual


def test_teams_are_of_places_that_are_up(tmp_path: Path) -> None:
    machine = own_cores(CoreLeases(tmp_path), CpuLimits(FOUR, 2.5)).machine
    assert (len(machine.usual), len(machine.places)) == (2, 4)
    assert machine.teams == (tuple(place.name for place in machine.usual),)


def test_a_host_in_words() -> None:
    plain = [HostCore(core) for core in range(2)]
    assert host_in_words(CpuLimits(frozenset([0, 1])), plain, None) == [says("2 cores may … no CPU quota below that")]
    pairs = [
        HostCore(core, 1 + core % 2, ((0, 2), (1, 3))[core % 2], core // 2, (3e9, 2.2e9)[core % 2]) for core in FOUR
    ]
    assert host_in_words(CpuLimits(FOUR, 2.5), pairs, 3 << 29)[1:] == [
        "at most 1.5 GiB of memory",
        says("… of one core: 0+2, 1+3"),
        says("… by memory node: 0: 0, 1; 1: 2, 3"),
        "cores by GHz at most: 2.2: 1, 3; 3: 0, 2",
    ]
