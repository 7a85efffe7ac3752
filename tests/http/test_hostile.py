"""Whatever strangers send over HTTP: nothing dies, nothing grows, and who is polite is served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rigs.strangers_process import malformed, slow
from tests.http.http_caller import HttpCaller
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, SHAPE, frame_of, write_identity_model
from tests.waiting import until

_ROOM_BYTES = 48 * 2**20
TENSOR = {"name": "x", "datatype": "FP32", "shape": list(SHAPE)}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("hostile")
    with DaemonProcess(folder, write_identity_model(folder), "--http", "127.0.0.1:0") as process:
        yield process


@pytest.mark.parametrize("count", [400, pytest.param(100_000, marks=pytest.mark.long)])
def test_malformed_requests_cost_their_sender_and_nobody_else(daemon: DaemonProcess, count: int) -> None:
    settings = {"port": port(daemon), "model": NAME, "tensor": TENSOR, "seed": count}
    asyncio.run(malformed(settings, 200))  # what is made once is there
    before = held(daemon)
    served = threading.Event()

    def go_on() -> None:
        asyncio.run(malformed(settings, count))
        while not served.is_set():
            asyncio.run(malformed(settings, 16))

    strangers = threading.Thread(target=go_on)
    strangers.start()
    numbers = 0
    try:
        with closing(HttpCaller(daemon.http[0])) as polite:
            while strangers.is_alive():
                numbers += 1
                status, output = polite.infer(frame_of(numbers))
                assert status == 200, output
                assert (output == frame_of(numbers)).all()
                if numbers == 10:
                    served.set()
    finally:
        served.set()
        strangers.join()
    assert_as_before(daemon, before)


@pytest.mark.long
def test_slow_and_half_open_connections_are_cut_off(daemon: DaemonProcess) -> None:
    settings = {"port": port(daemon), "model": NAME, "tensor": TENSOR, "seed": 0}
    asyncio.run(malformed(settings, 200))
    before = held(daemon)
    counts: dict[str, int] = {}
    strangers = threading.Thread(target=lambda: counts.update(asyncio.run(slow(settings, 200, 40))))
    strangers.start()
    with closing(HttpCaller(daemon.http[0])) as polite:
        while strangers.is_alive():
            assert polite.infer(frame_of(1))[0] == 200
    assert counts["silent"] == counts["head"] == counts["body"] == 50
    assert_as_before(daemon, before)


def port(daemon: DaemonProcess) -> int:
    return int(daemon.http[0].rpartition(":")[2])


def held(daemon: DaemonProcess) -> dict[str, Any]:
    """What the HTTP process has."""
    (http,) = daemon.running("shisha_rt.http.process")
    return {
        "pid": http.pid,
        "bytes": http.memory_info().rss,
        "descriptors": len(list(Path(f"/proc/{http.pid}/fd").iterdir())),
    }


def assert_as_before(daemon: DaemonProcess, before: dict[str, Any]) -> None:
    assert held(daemon)["pid"] == before["pid"]
    until(lambda: held(daemon)["descriptors"] <= before["descriptors"] + 2, "the end of strangers' connections")
    assert held(daemon)["bytes"] < before["bytes"] + _ROOM_BYTES
    assert "Traceback" not in daemon.stderr()
    with closing(HttpCaller(daemon.http[0])) as polite:
        assert polite.infer(frame_of(7))[0] == 200
