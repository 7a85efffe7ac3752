"""What the host process takes from its daemons' answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from shisha_rt.core import dealer as de
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.repository.entries import ModelEntry
from shisha_rt.repository.fleet import Fleet, ServedModel
from shisha_rt.repository.hosted import StartOptions
from shisha_rt.repository.model_daemon import Home, ModelDaemon

ENTRY = ModelEntry("net", "1", Settings("net.onnx"), de.Terms())


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    poller, context = Poller(), zmq.Context[zmq.Socket[bytes]]()
    yield Home(tmp_path, poller, context)
    poller.close()
    context.term()


def status(busy_s: float) -> dict[str, Any]:
    frames = {"busy_s": busy_s, "answered": {}, "in_flight": 0}
    return {"status": {"frames": frames, "places": [], "plan": {"stages": []}}}


def test_what_a_daemon_says_after_another_has_taken_over_is_not_counted(home: Home, tmp_path: Path) -> None:
    """The load since then would be less than none."""
    machine = Machine("one", "", (Memory("ram"),), (Place("core0", (0,), 1, 1, 1.0, 1, "ram"),))
    share = HostShare(machine, CoreLeases(tmp_path / "leases"), is_dealt=True)
    fleet = Fleet(share, home, StartOptions((logging.WARNING, ""), fresh=False), lambda: None)
    before, after = (ModelDaemon(ENTRY, number, home) for number in (1, 2))
    before.ready = after.ready = True
    fleet.models["net"] = served = ServedModel(ENTRY, daemon=after)
    fleet.deal(de.ModelFound("net", de.Terms(), ("core0",)))
    fleet._heard(served, before, status(9.0))
    fleet._note_statistics(served, before, {"model_stats": [{}]})
    assert (served.seen, served.said, served.statistics) == (None, {}, ())
    fleet._heard(served, after, status(1.0))
    assert served.seen is not None
    assert served.seen.busy_s == 1.0
    share.close()
