"""The many connections of `overload`, before a real daemon."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.rigs.many_process import DEAF, HALF, HONEST, TRICKLING, crowd_of
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import write_identity_model


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("daemon")
    with DaemonProcess(folder, write_identity_model(folder), "--http", "127.0.0.1:0") as running:
        yield running


@pytest.mark.parametrize("over_http", [False, True], ids=["ZeroMQ", "HTTP"])
def test_every_frame_of_an_honest_connection_is_answered_as_it_should_be(
    daemon: DaemonProcess, over_http: bool
) -> None:
    crowd = crowd_of(daemon.endpoint, urlsplit(daemon.http[0]).port if over_http else None)
    assert crowd.open(**{HONEST: 4, DEAF: 1, TRICKLING: 1, HALF: 4}) == {"open": 10}
    crowd.fill(3)
    results = crowd.offer(time.monotonic(), 0.5, rate=200)
    assert [results[what] for what in ("lost", "doubled", "wrong")] == [0, 0, 0]
    assert results["codes"][""] > 0  # type: ignore[index]
    crowd.close()


def test_an_answer_to_another_frame_is_wrong(daemon: DaemonProcess) -> None:
    crowd = crowd_of(daemon.endpoint, None)
    crowd.expected.reverse()
    assert crowd.saturate(0.2, in_flight=2)["wrong"] > 0  # type: ignore[operator]
    crowd.close()
