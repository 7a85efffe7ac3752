"""Frames that share runs, live: answers, changes of plan, deaths under load, and what is refused."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shisha_rt.client import Client, Internal
from shisha_rt.measure.compile import compile_model
from shisha_rt.plan.plan import Plan
from tests.serving.changed_plans import change_plans
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, frame_of, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import shared_runs
from tests.serving.random_plans import Cuttable
from tests.waiting import PATIENCE_S, until

PLACES: Final = ("a", "b", "c")
MOST: Final = 8


@pytest.fixture(scope="module")
def cuttable(identity: Path) -> Cuttable:
    compiled = compile_model(identity)
    return Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs, compiled.index.splits)


@pytest.fixture(scope="module")
def running(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("batches")
    with DaemonProcess(folder, identity, "--machine", machine_file(folder, PLACES), "--batch", MOST) as process:
        yield process


@pytest.fixture
def daemon(running: DaemonProcess) -> DaemonProcess:
    running.wait_for_workers()
    return running


def in_batches(plan: Plan, rng: random.Random) -> Plan:
    return Plan(tuple(replace(stage, batch=rng.choice((1, 2, 3, 5, MOST))) for stage in plan.stages))


@pytest.mark.parametrize(("count", "kill_every"), [(12, 6), pytest.param(400, 25, marks=pytest.mark.long)])
def test_changes_and_deaths_under_load(daemon: DaemonProcess, cuttable: Cuttable, count: int, kill_every: int) -> None:
    """Every answer is its own input, bit for bit, whatever runs it shared; some of its inputs and outputs are lent."""
    rng = random.Random(count)
    plans = (in_batches(cuttable.random_plan(rng, PLACES), rng) for _ in range(count))
    path = daemon.local_socket
    with (
        Load(daemon.endpoint, 0, streams=4, depth=6) as first,
        Load(daemon.endpoint, 1, streams=4, depth=6, sharing=path, line=path) as second,
    ):
        change_plans(daemon, first, plans, PLACES, kill_every)
    assert_kept(first, second)


def test_frames_share_runs_and_the_page_says_how_many(daemon: DaemonProcess) -> None:
    stages = [  # two places feed a third, before which frames wait however the cores are shared
        {"first": 0, "last": 3, "places": ["b", "c"]},
        {"first": 4, "last": LAYERS - 1, "places": ["a"], "batch": MOST},
    ]
    before_runs, before_frames = shared_runs(daemon.metrics)
    assert daemon.control.set_plan(stages)["outcome"] == "live"
    live_stages = daemon.control.plan()["stages"]
    assert [{key: stage[key] for key in stage if key != "service_s"} for stage in live_stages] == stages
    with Load(daemon.endpoint, 0, streams=8, depth=8) as load:
        load.wait_for_answers(400)
    assert_kept(load)
    runs, frames = shared_runs(daemon.metrics)
    runs.subtract(before_runs)
    frames.subtract(before_frames)
    assert (+runs).keys() == {"1"}, "of a stage whose runs have one frame there is nothing"
    assert frames["1"] > runs["1"]


def test_of_a_run_that_dies_twice_one_frame_is_to_blame(tmp_path: Path) -> None:
    """The first is charged to nobody: its frames run alone, and what ends the worker then is that frame's error."""
    shape = (1, 128, 48, 48)
    model = write_identity_model(tmp_path, channels=128, size=48, name="slow")
    machine = machine_file(tmp_path, ["only"])
    options = "--batch", MOST, "--batch-delay-us", 500_000
    with DaemonProcess(tmp_path, model, "--machine", machine, *options) as daemon:
        stages = [{"first": 0, "last": LAYERS - 1, "places": ["only"], "batch": MOST}]
        assert daemon.control.set_plan(stages)["outcome"] == "live"
        board = daemon.board(1)
        outcomes: list[BaseException | None] = [None] * MOST

        def send(number: int) -> None:
            frame = frame_of(number, shape)
            with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
                try:
                    np.testing.assert_array_equal(client.infer(frame).outputs["y"], frame)
                except (AssertionError, Internal) as error:
                    outcomes[number] = error

        senders = [threading.Thread(target=send, args=(number,)) for number in range(MOST)]
        for sender in senders:
            sender.start()
        for what in "the run of all", "the first that runs alone":
            pid = daemon.wait_for_workers()["only"]
            until(lambda: board.running(0) is not None, what, every_s=0.001)
            daemon.kill_worker(pid)
        for sender in senders:
            sender.join(PATIENCE_S)
        (error,) = filter(None, outcomes)
        assert isinstance(error, Internal)
        assert "died while it" in error.message


def test_what_cannot_share_runs_is_refused(daemon: DaemonProcess) -> None:
    too_many = [{"first": 0, "last": LAYERS - 1, "places": ["a"], "batch": MOST + 1}]
    refused = daemon.control.set_plan(too_many)
    assert refused["outcome"] == "refused"
    assert f"has batch {MOST + 1}: expected at most {MOST}, which serve --batch sets" in refused["reason"]
