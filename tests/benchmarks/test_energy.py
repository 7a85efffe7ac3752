"""Counters of energy, laid out in a temporary folder."""

from __future__ import annotations

from pathlib import Path

from benchmarks.splits.energy import EnergyCounter, energy_counters, joules_between
from tests.machine.host.trees import write


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
