"""The cache is emptied, or what is in it overwritten, while a daemon serves from it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.client import Client, Unavailable
from shisha_rt.errors import Error
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import LAYERS, frame_of
from tests.waiting import until

PLAN = [{"first": 0, "last": 3, "places": ["slow0"]}, {"first": 4, "last": LAYERS - 1, "places": ["fast0"]}]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shisha-rt"


@pytest.fixture
def daemon(cache: Path, tmp_path: Path, identity: Path, two_places: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path, identity, "--machine", two_places, "--strategy", "seed") as process:
        yield process


def kill_workers(daemon: DaemonProcess) -> None:
    for pid in daemon.wait_for_workers().values():
        os.kill(pid, signal.SIGKILL)


def test_an_emptied_cache_is_filled_again(daemon: DaemonProcess, cache: Path) -> None:
    before = {file.relative_to(cache) for name in ("models", "engines") for file in (cache / name).glob("*/**/*")}
    for _ in range(2):  # what was put back is held, too
        for name in ("models", "engines"):
            shutil.rmtree(cache / name)
        kill_workers(daemon)
        with Client(daemon.endpoint, timeout_s=60) as client:
            np.testing.assert_array_equal(client.infer(frame_of(7)).output, frame_of(7))
        assert daemon.control.set_plan(PLAN)["outcome"] == "live"
        until(lambda: all((cache / path).exists() for path in before))
    assert [place["state"] for place in daemon.control.status()["places"]] == ["up", "up"]


@pytest.mark.long
def test_where_no_worker_can_start_any_more_frames_are_answered(daemon: DaemonProcess, cache: Path) -> None:
    for file in (cache / "engines").glob("*/*/index.json"):
        os.truncate(file, 100)
    kill_workers(daemon)
    with Client(daemon.endpoint, timeout_s=90) as client:
        for _ in range(2):
            with pytest.raises(Unavailable) as raised:
                client.infer(frame_of(7))
            assert raised.value.kind == Error.NO_WORKER
            assert "exit status 1" in str(raised.value)
