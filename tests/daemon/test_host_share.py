"""A daemon's share of the host: cores that another had leased are held once they are free."""

from __future__ import annotations

import os
from pathlib import Path

from shisha_rt.daemon.host_share import READ_EVERY_S, HostShare
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
