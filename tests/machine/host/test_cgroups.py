"""Limits of control groups of both versions, read up written trees; and of this host's, where they can be made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shisha_rt.machine.host import memory
from shisha_rt.machine.host.cgroups import ControlGroups, Throttling
from tests.machine.host.control_group import quota_group
from tests.machine.host.trees import write


def groups(folder: Path) -> ControlGroups:
    return ControlGroups(folder / "own", folder / "fs", folder / "pressure")


class TestVersion2:
    def test_the_tightest_on_the_way_up_counts(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "0::/user/job\n")
        job = tmp_path / "fs" / "user" / "job"
        write(job / "cpu.max", "max 100000\n")
        write(job.parent / "cpu.max", "150000 100000\n")
        write(tmp_path / "fs" / "cpu.max", "400000 100000\n")
        write(job / "memory.max", "max\n")
        write(job.parent / "memory.max", "1073741824\n")
        assert groups(tmp_path).quota_cores() == 1.5
        assert groups(tmp_path).memory_limit_bytes() == 1 << 30

    def test_the_least_that_is_left_on_the_way_up_counts(self, tmp_path: Path) -> None:
        """What lies in pages of files that the kernel would drop is left, too."""
        write(tmp_path / "own", "0::/pod/job\n")
        job = tmp_path / "fs" / "pod" / "job"
        write(job / "memory.max", "max\n")
        write(job / "memory.current", "300\n")
        assert groups(tmp_path).memory_left_bytes() is None
        write(job.parent / "memory.max", "1000\n")
        write(job.parent / "memory.current", "900\n")
        assert groups(tmp_path).memory_left_bytes() == 100
        write(job.parent / "memory.stat", "anon 500\nfile 400\ninactive_file 250\nactive_file 150\n")
        assert groups(tmp_path).memory_left_bytes() == 350
        write(job / "memory.max", "310\n")
        assert groups(tmp_path).memory_left_bytes() == 10
        write(job / "memory.current", "320\n")
        assert groups(tmp_path).memory_left_bytes() == 0

    def test_it_is_read_anew_each_time(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "0::/\n")
        seen = groups(tmp_path)
        assert (seen.quota_cores(), seen.memory_limit_bytes(), seen.pressure_s()) == (None, None, None)
        write(tmp_path / "fs" / "cpu.max", "50000 100000\n")
        assert seen.quota_cores() == 0.5
        write(tmp_path / "fs" / "cpu.max", "max 100000\n")
        assert seen.quota_cores() is None

    def test_a_container_sees_itself_as_the_root(self, tmp_path: Path) -> None:
        """The path is the host's, and leads nowhere in there."""
        write(tmp_path / "own", "0::/kubepods/burstable/pod1/abc\n")
        write(tmp_path / "fs" / "cpu.max", "200000 100000\n")
        assert groups(tmp_path).quota_cores() == 2.0

    def test_throttling_and_pressure(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "0::/job\n")
        job = tmp_path / "fs" / "job"
        write(job / "cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 1500000\n")
        write(tmp_path / "fs" / "cpu.stat", "usage_usec 99\n")  # the root's has no more than this
        assert groups(tmp_path).throttling() == Throttling(10, 4, 1.5)
        write(tmp_path / "pressure" / "cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=2000000\n")
        assert groups(tmp_path).pressure_s() == 2.0
        write(job / "cpu.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=500000\nfull avg10=0 total=1\n")
        assert groups(tmp_path).pressure_s() == 0.5


class TestVersion1:
    def test_quota_memory_and_throttling(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n")
        cpu = tmp_path / "fs" / "cpu"
        write(cpu / "job" / "cpu.cfs_quota_us", "50000\n")
        write(cpu / "job" / "cpu.cfs_period_us", "100000\n")
        write(cpu / "cpu.cfs_quota_us", "-1\n")
        write(cpu / "cpu.cfs_period_us", "100000\n")
        write(cpu / "job" / "cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 2500000000\n")
        write(tmp_path / "fs" / "memory" / "job" / "memory.limit_in_bytes", "536870912\n")
        write(tmp_path / "fs" / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
        assert groups(tmp_path).quota_cores() == 0.5
        assert groups(tmp_path).memory_limit_bytes() == 512 << 20
        write(tmp_path / "fs" / "memory" / "job" / "memory.usage_in_bytes", 500 << 20)
        write(tmp_path / "fs" / "memory" / "job" / "memory.stat", f"inactive_file 7\ntotal_inactive_file {80 << 20}\n")
        assert groups(tmp_path).memory_left_bytes() == 92 << 20
        assert groups(tmp_path).throttling() == Throttling(7, 2, 2.5)

    def test_a_limit_of_all_pages_is_none(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "4:memory:/\n")
        write(tmp_path / "fs" / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
        assert groups(tmp_path).memory_limit_bytes() is None

    def test_controllers_of_one_hierarchy(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "2:cpu,memory:/job\n")
        write(tmp_path / "fs" / "cpu" / "job" / "cpu.cfs_quota_us", "50000\n")
        write(tmp_path / "fs" / "cpu" / "job" / "cpu.cfs_period_us", "100000\n")
        write(tmp_path / "fs" / "memory" / "job" / "memory.limit_in_bytes", "1000\n")
        assert (groups(tmp_path).quota_cores(), groups(tmp_path).memory_limit_bytes()) == (0.5, 1000)

    def test_both_versions_mounted_at_once(self, tmp_path: Path) -> None:
        write(tmp_path / "own", "1:cpu:/job\n0::/unit\n")
        write(tmp_path / "fs" / "cpu" / "job" / "cpu.cfs_quota_us", "300000\n")
        write(tmp_path / "fs" / "cpu" / "job" / "cpu.cfs_period_us", "100000\n")
        write(tmp_path / "fs" / "unified" / "unit" / "cpu.max", "250000 100000\n")
        assert groups(tmp_path).quota_cores() == 2.5


@pytest.mark.parametrize("own", ["", "0::/\n", "3:cpu:/job\n"])
def test_nothing_is_limited_where_nothing_can_be_read(own: str, tmp_path: Path) -> None:
    write(tmp_path / "own", own)
    seen = groups(tmp_path)
    assert (seen.quota_cores(), seen.memory_limit_bytes(), seen.pressure_s()) == (None, None, None)
    assert seen.throttling() == Throttling()


def test_what_is_available_is_no_more_than_the_group_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "own", "0::/\n")
    monkeypatch.setattr(memory, "ControlGroups", lambda: groups(tmp_path))
    assert 1 << 20 < memory.available_memory_bytes() <= memory.own_memory_bytes()
    write(tmp_path / "fs" / "memory.max", 900_000)
    write(tmp_path / "fs" / "memory.current", 400_000)
    assert memory.available_memory_bytes() == 500_000


SPINNING = """
import json, time
from shisha_rt.machine.host import memory
from shisha_rt.machine.host.cgroups import ControlGroups
groups = ControlGroups()
before, until_s = groups.throttling(), time.monotonic() + 60.0  # beside many neighbours the quota is met late
while time.monotonic() < until_s:
    after = groups.throttling()
    if after.throttled_periods > before.throttled_periods and after.throttled_s > before.throttled_s:
        break
throttled = after.throttled_periods - before.throttled_periods, after.throttled_s - before.throttled_s
print(json.dumps([groups.quota_cores(), *throttled]))
"""


def test_a_real_quota_is_read_and_throttles() -> None:
    with quota_group(0.3) as group, group.entered():
        spun = subprocess.run([sys.executable, "-c", SPINNING], stdout=subprocess.PIPE, check=True)
    quota_cores, throttled_periods, throttled_s = json.loads(spun.stdout)
    assert quota_cores == 0.3
    assert throttled_periods > 0
    assert throttled_s > 0
