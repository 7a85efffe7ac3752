"""What the operating system shows, laid out in a temporary folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shisha_rt.machine import detect
from shisha_rt.machine.detect import (
    EnergyCounter,
    core_ranks,
    energy_counters,
    joules_between,
    place_count,
    quota_cores,
    this_machine,
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_one_unthrottled_place_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "quota_cores", lambda: None)
    machine = this_machine([2, 0])
    assert [place.name for place in machine.places] == ["core0", "core2"]
    assert [place.cores for place in machine.places] == [(0,), (2,)]
    assert all((p.threads, p.speed, p.memory, p.shared) == (1, 1.0, "ram", False) for p in machine.places)


def test_by_default_within_the_affinity_mask() -> None:
    cores = {core for place in this_machine().places for core in place.cores}
    assert cores
    assert cores <= os.sched_getaffinity(0)


def test_a_quota_takes_the_fastest_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "quota_cores", lambda: 1.5)
    monkeypatch.setattr(detect, "core_ranks", lambda cores: {0: 2, 1: 2, 2: 1, 3: 1})
    assert [place.name for place in this_machine(range(4)).places] == ["core2", "core3"]


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (0.2, 1), (1.0, 1), (1.2, 2), (9.0, 4)])
def test_a_part_of_a_core_is_worth_a_place(quota: float | None, expected: int) -> None:
    assert place_count(4, quota) == expected


class TestRanks:
    def test_capacity_tells_the_classes(self, tmp_path: Path) -> None:
        for core, capacity in enumerate([446, 446, 1024, 871]):
            write(tmp_path / f"cpu{core}" / "cpu_capacity", f"{capacity}\n")
        assert core_ranks([0, 1, 2, 3], tmp_path) == {0: 3, 1: 3, 2: 1, 3: 2}

    def test_favoured_cores_of_one_kind_are_one_class(self, tmp_path: Path) -> None:
        for core, frequency in enumerate([5000000, 5200000, 3800000]):
            write(tmp_path / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq", f"{frequency}\n")
        assert core_ranks([0, 1, 2], tmp_path) == {0: 1, 1: 1, 2: 2}

    def test_half_an_answer_is_none(self, tmp_path: Path) -> None:
        write(tmp_path / "cpu0" / "cpu_capacity", "1024\n")
        assert core_ranks([0, 1], tmp_path) == {0: 1, 1: 1}


class TestQuota:
    def test_version_2_the_tightest_on_the_way_up(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "0::/user/job\n")
        write(tmp_path / "fs" / "user" / "job" / "cpu.max", "max 100000\n")
        write(tmp_path / "fs" / "user" / "cpu.max", "150000 100000\n")
        write(tmp_path / "fs" / "cpu.max", "400000 100000\n")
        assert quota_cores(tmp_path / "own", tmp_path / "fs") == 1.5

    def test_version_1(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "4:memory:/\n3:cpu,cpuacct:/job\n")
        write(tmp_path / "fs" / "cpu" / "job" / "cpu.cfs_quota_us", "50000\n")
        write(tmp_path / "fs" / "cpu" / "job" / "cpu.cfs_period_us", "100000\n")
        write(tmp_path / "fs" / "cpu" / "cpu.cfs_quota_us", "-1\n")
        write(tmp_path / "fs" / "cpu" / "cpu.cfs_period_us", "100000\n")
        assert quota_cores(tmp_path / "own", tmp_path / "fs") == 0.5

    def test_no_limit(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "0::/\n")
        write(tmp_path / "fs" / "cpu.max", "max 100000\n")
        assert quota_cores(tmp_path / "own", tmp_path / "fs") is None

    def test_no_cgroups(self, tmp_path: Path) -> None:
        assert quota_cores(tmp_path / "own", tmp_path / "fs") is None


class TestEnergyCounters:
    @staticmethod
    def zone(folder: Path, **files: object) -> None:
        for file, content in files.items():
            write(folder / file, f"{content}\n")

    def test_packages_alone_count(self, tmp_path: Path) -> None:
        self.zone(tmp_path / "intel-rapl:0", name="package-0", energy_uj=1_500_000, max_energy_range_uj=4_000_000)
        self.zone(tmp_path / "intel-rapl:0:0", name="core", energy_uj=900_000, max_energy_range_uj=4_000_000)
        self.zone(tmp_path / "intel-rapl:1", name="psys", energy_uj=2_000_000, max_energy_range_uj=4_000_000)
        assert energy_counters(tmp_path) == {"intel-rapl:0": EnergyCounter(1.5, 4.0)}

    def test_none_where_the_system_has_none_or_keeps_them(self, tmp_path: Path) -> None:
        self.zone(tmp_path / "intel-rapl:0", name="package-0", max_energy_range_uj=4_000_000)
        assert energy_counters(tmp_path) == {}
        assert energy_counters(tmp_path / "missing") == {}

    def test_counters_begin_anew(self) -> None:
        before = {"a": EnergyCounter(3.5, 4.0), "b": EnergyCounter(1.0, 10.0)}
        after = {"a": EnergyCounter(0.25, 4.0), "b": EnergyCounter(3.0, 10.0)}
        assert joules_between(before, after) == 2.75
        assert joules_between(before, before) == 0.0
