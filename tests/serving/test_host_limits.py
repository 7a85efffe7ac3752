"""Daemons under quotas of CPU time, and beside each other: which cores they take, and that no frame is lost by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.rigs.control_group import QuotaGroup
from shisha_rt.client import FailedPrecondition
from shisha_rt.machine.host.cores import usable_cores
from tests.machine.host.control_group import quota_group
from tests.serving.daemon_forks import forking_pid
from tests.serving.daemon_process import DaemonProcess
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.serving.page import scrape, standing, value
from tests.serving.tuned import events
from tests.waiting import until

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


def cores_up(daemon: DaemonProcess) -> set[int]:
    """The cores whose places have a worker."""
    return {core for place in daemon.control.status()["places"] if place["pid"] for core in place["cores"]}


def leased(daemon: DaemonProcess) -> set[int]:
    return {*daemon.control.status()["host"]["leased"]}


def within(group: QuotaGroup, folder: Path, model: Path) -> DaemonProcess:
    with group.entered(forking_pid()):
        return DaemonProcess(folder, model)


def folder_in(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_daemons_under_a_quota_of_one_core_each_have_different_cores(tmp_path: Path, identity: Path) -> None:
    with (
        quota_group(1.0) as group,
        quota_group(1.0) as other_group,
        within(group, folder_in(tmp_path, "one"), identity) as first,
        within(other_group, folder_in(tmp_path, "other"), identity) as other,
    ):
        assert len(cores_up(first)) == len(cores_up(other)) == 1
        assert not cores_up(first) & cores_up(other)
        host = first.control.status()["host"]
        assert (host["quota_cores"], host["usable_cores"]) == (1.0, len(usable_cores()))
        assert "1 place, throttled where" in host["why"]
        assert host["why"] in first.stderr()
        samples = scrape(first.metrics)
        assert value(samples, "shisha_host_quota_cores") == 1.0
        assert value(samples, "shisha_host_shared_cores") == 0
        for name in ("periods", "throttled_periods", "throttled_seconds", "others_cpu_seconds", "pressure_seconds"):
            assert value(samples, f"shisha_host_{name}_total") >= 0


def test_places_follow_a_quota_and_no_frame_is_lost(tmp_path: Path, identity: Path) -> None:
    """One that is up no more has left its core: no thread of this daemon is on it, and others may lease it."""
    every = {*usable_cores()}
    with quota_group(2.0 * len(every)) as group, within(group, tmp_path, identity) as daemon:
        assert cores_up(daemon) == leased(daemon) == every
        with Load(daemon.endpoint, streams=4, model_name=identity.stem, pause_s=PAUSE_S) as load:
            group.allow(1.0)
            until(lambda: len(cores_up(daemon)) == 1, "places to be given up")
            until(lambda: leased(daemon) == cores_up(daemon), "leases to be given back")
            (gone,) = [name for name, said in standing(daemon.metrics).items() if said == "released"][:1]
            with pytest.raises(FailedPrecondition, match=f"place: '{gone}' is released: .* a CPU quota of 1"):
                daemon.control.call("place_set", place=gone, up=True)
            group.allow(2.0 * len(every))
            until(lambda: cores_up(daemon) == leased(daemon) == every, "places to be taken back")
            load.wait_for_answers(20)
        assert_kept(load)
        fewer, more = events(daemon.control, "places_allotted")
        assert fewer["released"] == more["taken"]
        assert "a CPU quota of 1" in fewer["why"]


@pytest.mark.long
def test_a_place_that_the_host_has_taken_is_given_up_once_it_is_not_the_last(tmp_path: Path, identity: Path) -> None:
    """It was told to go down while no other was up, in vain, and stayed up for good."""
    kept, other = usable_cores()[:2]
    with DaemonProcess(tmp_path, identity, is_program=True) as daemon:
        places = {place["cores"][0]: place["name"] for place in daemon.control.status()["places"]}
        for core in places.keys() - {other}:
            daemon.control.call("place_set", place=places[core], down=True)
        for task in Path(f"/proc/{daemon.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {kept})
        until(lambda: places[other] in daemon.control.status()["host"]["released"], "the host's new limits")
        assert cores_up(daemon) == {other}
        daemon.control.call("place_set", place=places[kept], up=True)
        until(lambda: cores_up(daemon) == {kept}, "the place to be given up")


def test_whoever_comes_last_shares_and_says_so_until_cores_are_free(tmp_path: Path, identity: Path) -> None:
    every = {*usable_cores()}
    with (
        DaemonProcess(folder_in(tmp_path, "first"), identity) as first,
        DaemonProcess(folder_in(tmp_path, "last"), identity) as last,
    ):
        assert leased(first) == cores_up(first) == cores_up(last) == every
        assert not leased(last)
        assert "cores shared with" in last.stderr()
        assert value(scrape(last.metrics), "shisha_host_shared_cores") == len(every)
        assert first.terminate() == 0
        until(lambda: leased(last) == every, "the leases of one that has ended")
        until(lambda: value(scrape(last.metrics), "shisha_host_shared_cores") == 0, "cores of its own")
