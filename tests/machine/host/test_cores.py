"""Classes, siblings, nodes and frequencies of cores, as a written /sys has them."""

from __future__ import annotations

from pathlib import Path

from shisha_rt.machine.allotment import HostCore
from shisha_rt.machine.host.cores import core_ranks, host_cores
from tests.machine.host.trees import write


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


def test_siblings_nodes_and_frequencies(tmp_path: Path) -> None:
    write(tmp_path / "cpu4" / "topology" / "thread_siblings_list", "4,20-21\n")
    write(tmp_path / "cpu4" / "cpufreq" / "cpuinfo_max_freq", "3500000\n")
    (tmp_path / "cpu4" / "node1").mkdir()
    write(tmp_path / "cpu5" / "topology" / "thread_siblings_list", "broken\n")
    known, unknown = host_cores([4, 5], tmp_path)
    assert known == HostCore(4, 1, (4, 20, 21), 1, 3.5e9)
    assert unknown == HostCore(5, 1, (5,), None, None)
