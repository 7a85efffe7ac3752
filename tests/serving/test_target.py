"""A target, live: what would be late is refused at once, and what is in time is counted. And priorities by each way."""

from __future__ import annotations

import json
import math
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.client import Answer, Client
from shisha_rt.errors import Error
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, SHAPE, frame_of
from tests.serving.page import scrape, value
from tests.waiting import until

FRAMES = 100


@pytest.fixture(scope="module")
def identity_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("target")


@pytest.fixture(scope="module", params=[0.001, 60_000.0], ids=["nothing is in time", "all is"])
def daemon(request: pytest.FixtureRequest, identity: Path, identity_folder: Path) -> Iterator[DaemonProcess]:
    options = "--strategy", "seed", "--target-ms", request.param, "--http", "127.0.0.1:0"
    with DaemonProcess(identity_folder, identity, *options) as running:
        running.wait_for_workers()
        yield running


def test_what_would_be_late_is_refused_at_once(daemon: DaemonProcess) -> None:
    frames = [frame_of(number) for number in range(FRAMES)]
    with Client(daemon.endpoint) as client:
        single = [client.infer(frame) for frame in frames[:5]]
        with client.stream(in_flight=16) as stream:
            outcomes = list(stream.run(frames, errors="return"))
    for frame, outcome in zip(frames, outcomes, strict=True):
        if isinstance(outcome, Answer):
            np.testing.assert_array_equal(outcome.outputs["y"], frame)
    ends = Counter("OK" if isinstance(outcome, Answer) else outcome.kind for outcome in outcomes)
    counts = daemon.control.status()["frames"]
    samples = scrape(daemon.metrics)
    assert value(samples, "shisha_target_seconds") == pytest.approx(counts["target_ms"] / 1e3)
    if counts["target_ms"] < 1:
        assert set(ends) == {"OK", Error.TARGET_OUT_OF_REACH}, "a frame that meets no other is never refused"
        assert counts["in_time"] == 0
    else:
        assert ends == {"OK": FRAMES}
        assert counts["in_time"] >= FRAMES + len(single)
        until(
            lambda: value(scrape(daemon.metrics), "shisha_frames_in_time_total") >= FRAMES + len(single),
            "the page counts them",
        )


def test_a_priority_comes_by_each_way_and_out_of_range_is_refused(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint) as client:
        assert isinstance(client.infer(frame_of(1), priority=1), Answer)
        with client.stream(in_flight=1, priority=9) as stream:
            assert len(list(stream.run([frame_of(1), frame_of(2)]))) == 2
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32", "data": [0.0] * math.prod(SHAPE)}
    statuses = []
    for priority in (3, 10):
        asked = json.dumps({"inputs": [tensor], "parameters": {"priority": priority}}).encode()
        try:
            with urllib.request.urlopen(f"{daemon.http[0]}/v2/models/{NAME}/infer", asked) as answer:
                statuses.append(answer.status)
        except urllib.error.HTTPError as error:
            statuses.append(error.code)
    assert statuses == [200, 400]
