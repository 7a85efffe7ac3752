"""Shisha's heuristics from the options of `serve`: the seed that runs first, and the rule by which the walk goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shisha_rt.client import Client
from shisha_rt.planner.tune import HEURISTICS
from tests.cli.conftest import Run
from tests.serving.daemon_process import DaemonProcess, machine_file

MODEL = "zoo:squeezenet"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "H2" else pytest.mark.long) for name in HEURISTICS]
)
def test_a_daemon_begins_and_walks_by_its_heuristic(run: Run, tmp_path: Path, name: str) -> None:
    heuristic = HEURISTICS[name]
    machine = machine_file(tmp_path, ["fast0", "slow0", "slow1"])
    by_heuristic = ("--strategy", "shisha", "--assign", heuristic.assign, "--balance", heuristic.balance)
    with (
        DaemonProcess(tmp_path, MODEL, "--machine", machine, *by_heuristic, "--no-replicate", "--fresh") as process,
        Client(process.endpoint) as client,
    ):
        live, tuner = client.plan(), client.status()["tuner"]
    assert (tuner["strategy"], tuner["balance"]) == ("shisha", heuristic.balance)
    seeded = run("plan", MODEL, "--machine", machine, "--assign", heuristic.assign, "--json").object
    parts = [(stage["first"], stage["last"]) for stage in live["stages"]]
    assert parts == [(stage["first"], stage["last"]) for stage in seeded["stages"]]
    assert [stage["places"] for stage in live["stages"]] == [stage["places"] for stage in seeded["stages"]]
