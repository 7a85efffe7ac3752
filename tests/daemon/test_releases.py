"""When a place that is taken down counts as released, and which cores the daemon's own threads keep off."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator

import pytest

from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.releases import Releases
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.machine import Machine, Memory, Place

CORES = usable_cores()
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


def place(name: str, core: int) -> Place:
    return Place(name, (core,), 1, threads=1, speed=1.0, rank=1, memory="ram", shared=True)


MACHINE = Machine(
    "m", "m", (Memory("ram"),), (place("a", CORES[0]), place("b", CORES[-1]), place("beside b", CORES[-1]))
)


@pytest.fixture
def releases() -> Iterator[Releases]:
    """Threads of this process are kept off; in the end they may run where they might before."""
    before = os.sched_getaffinity(0)
    try:
        yield Releases(MACHINE, HostShare(MACHINE, CoreLeases(None)), lambda: [os.getpid()])
    finally:
        os.sched_setaffinity(0, before)


def test_a_release_waits_for_what_workers_keep_of_teams(releases: Releases) -> None:
    released: list[bool] = []
    releases.note_team(7, ("a", "b"))
    releases.note_team(8, ("a", "b"))
    releases.note_team(9, ("a", "beside b"))
    releases.ask("b", released.append)
    assert releases.finish(["a"]) == [], "its plan is still there"
    assert releases.planless("b", math.inf) == ([7, 8], {CORES[-1]})
    assert releases.finish(["a"]) == []
    releases.forgotten(7)
    releases.gone(8)
    assert "b" in releases
    assert releases.finish(["a"]) == ["b"]
    assert "b" not in releases
    assert released == [True]
    assert releases.finish(["a"]) == []


def test_a_worker_that_does_not_forget_in_time_is_late_until_it_is_gone(releases: Releases) -> None:
    """The place's release, and its cores' lease, were waited for as long as an engine hung in building a stage."""
    released: list[bool] = []
    releases.note_team(7, ("a", "b"))
    releases.note_team(8, ("a", "b"))
    releases.ask("b", released.append)
    releases.planless("b", 10.0)
    releases.forgotten(8)
    assert releases.late(9.0) == set()
    assert releases.late(10.0) == {7}
    releases.gone(7)
    assert releases.late(11.0) == set()
    assert releases.finish(["a"]) == ["b"]
    assert released == [True]


def test_threads_leave_a_released_core_and_may_use_it_again(releases: Releases) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert thread.native_id is not None
    try:
        releases.ask("b", lambda _: None)
        releases.planless("b", math.inf)
        releases.finish(["a"])
        for task in (0, thread.native_id):
            assert CORES[-1] not in os.sched_getaffinity(task)
        releases.wanted("b")
        for task in (0, thread.native_id):
            assert CORES[-1] in os.sched_getaffinity(task)
    finally:
        ended.set()
        thread.join()


def test_a_core_of_another_place_that_is_up_stays(releases: Releases) -> None:
    releases.ask("b", lambda _: None)
    releases.planless("b", math.inf)
    releases.finish(["a", "beside b"])
    assert CORES[-1] in os.sched_getaffinity(0)


def test_a_place_that_is_wanted_again_is_not_released(releases: Releases) -> None:
    released: list[bool] = []
    releases.ask("b", released.append)
    releases.planless("b", math.inf)
    releases.wanted("b")
    assert released == [False]
    assert releases.finish(["a", "b"]) == []


def test_what_the_limits_of_the_host_have_taken_is_told_without_masks(releases: Releases) -> None:
    """Limits say themselves where threads may run."""
    releases.note_team(7, ("a", "b"))
    assert releases.planless("b", math.inf)[0] == [7]
    assert releases.finish(["a"]) == []
    releases.forgotten(7)
    assert releases.finish(["a"]) == ["b"]
    assert CORES[-1] in os.sched_getaffinity(0)


def test_at_the_end_everything_is_released(releases: Releases) -> None:
    released: list[bool] = []
    releases.ask("b", released.append)
    releases.close()
    assert released == [True]
