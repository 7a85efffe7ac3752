"""Counters of energy as the kernel shows them; here in a folder like its own, as few hosts let anybody read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shisha_rt.machine.host.energy import EnergyCounters


def zone(folder: Path, name: str, said: str, energy_uj: object, range_uj: int = 1000_000_000) -> Path:
    path = folder / name
    path.mkdir()
    for file, text in (("name", said), ("energy_uj", energy_uj), ("max_energy_range_uj", range_uj)):
        (path / file).write_text(f"{text}\n")
    return path / "energy_uj"


def test_packages_are_counted_once_and_from_their_first_look(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 1_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000)
    (tmp_path / "intel-rapl").mkdir()
    counters = EnergyCounters(tmp_path)
    assert (counters.joules, counters.fault) == ({"package-0": 0.0}, "")
    package.write_text("7500000\n")
    assert counters.look() == {"package-0": pytest.approx(2.5)}
    package.write_text("999000000\n")
    counters.look()
    package.write_text("500000\n")  # beyond its range it begins anew
    assert counters.look() == {"package-0": pytest.approx(994.0 + 1.5)}


@pytest.mark.parametrize("text", ["", "much"])
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    path = zone(tmp_path, "intel-rapl:0", "package-0", text)
    counters = EnergyCounters(tmp_path)
    assert counters.joules == {}
    assert str(path) in counters.fault


@pytest.mark.parametrize("name", [".", "missing"])
def test_a_host_without_counters_says_so(tmp_path: Path, name: str) -> None:
    counters = EnergyCounters(tmp_path / name)
    assert counters.look() == {}
    assert str(tmp_path / name) in counters.fault


def test_a_counter_that_goes_stays_at_what_it_counted(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl:1", "package-1", 0)
    counters = EnergyCounters(tmp_path)
    path.write_text("3000000")
    counters.look()
    path.unlink()
    assert counters.look() == {"package-1": pytest.approx(3.0)}
