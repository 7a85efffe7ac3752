"""The example clients against one real daemon, as a stranger runs them."""

from __future__ import annotations

import asyncio
import http.client
import re
import shutil
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np
import pytest

from examples import asyncio_client, camera, http_client
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import write_identity_model
from tests.wording import says

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A network that takes pictures of 8 by 8 and answers each with itself, also over HTTP."""
    folder = tmp_path_factory.mktemp("daemon")
    model = write_identity_model(folder, channels=3, size=8)
    machine = machine_file(folder, ["fast0", "slow0"])
    with DaemonProcess(folder, model, "--machine", machine, "--http", "127.0.0.1:0") as process:
        yield process


def started(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    """What its command line does, in this process."""
    monkeypatch.setattr(sys, "argv", ["example", *map(str, arguments)])
    module.main()


def ran(*command: object, cwd: Path | None = None) -> list[str]:
    """Its lines."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def address(daemon: DaemonProcess) -> str:
    return daemon.http[0].removeprefix("http://")


def test_a_camera_is_watched(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("--fps", 100, "--seconds", 0.2, "--deadline-ms", 300, "--endpoint", daemon.endpoint)
    started(camera, monkeypatch, *how)
    *_, total = capsys.readouterr().out.splitlines()
    match = re.match(r"in all: (\d+) taken, (\d+) answered, (\d+) dropped, (\d+) late; latency", total)
    assert match is not None, total
    taken, answered, dropped, late = map(int, match.groups())
    assert taken == 20
    assert 0 < answered <= taken - dropped - late


def test_a_picture_becomes_a_tensor() -> None:
    picture = next(camera.draw_pictures(16, 32))
    tensor = camera.as_tensor(picture, 8, 8)
    assert tensor.shape == (1, 3, 8, 8)
    assert tensor.dtype == np.float32
    np.testing.assert_allclose(tensor[0, :, 5, 0] * 255, (240, 200, 40))
    np.testing.assert_allclose(tensor[0, :, 5, 7] * 255, 96)


def test_several_cameras_in_one_program(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(asyncio_client.main(daemon.endpoint, cameras=3, count=20))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("epoch 1 is live: ")
    assert lines[-3:] == [says(f"camera{number}: 20 frames, in … epochs [1]") for number in range(3)]


def test_http_with_the_standard_library(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started(http_client, monkeypatch, "identity", "--address", address(daemon), "--frames", 3)
    lines = capsys.readouterr().out.splitlines()
    matches = [re.fullmatch(r"frame (\d): y has 192 values, the largest is number \d+", line) for line in lines]
    assert [match and match[1] for match in matches] == ["0", "1", "2"]
    with pytest.raises(SystemExit, match="http_client: 404: "):
        started(http_client, monkeypatch, "other", "--address", address(daemon))


def test_an_answer_over_http_is_the_whole_of_it(daemon: DaemonProcess) -> None:
    with closing(http.client.HTTPConnection(address(daemon))) as connection:
        model = http_client.ask(connection, "/v2/models/identity")
        values = array("f", range(192))
        answer, outputs = http_client.infer(connection, model, values, 60_000)
    assert answer["model_name"] == "identity"
    assert outputs == {"y": values}


@pytest.mark.long
@pytest.mark.skipif(find_spec("tritonclient") is None, reason="needs tritonclient[http]")
def test_the_stock_client_of_triton(daemon: DaemonProcess) -> None:
    lines = ran(sys.executable, EXAMPLES / "triton_client.py", address(daemon), "identity")
    assert lines == ["y (1, 3, 8, 8)"] * 8


def echoed(lines: list[str], count: int) -> bool:
    """Whether frames are answered with themselves, in order."""
    expected = [f"frame {number}: 192 values, the first {number}, of epoch 1" for number in range(count)]
    return [line for line in lines if line.startswith("frame")] == expected


@pytest.mark.long
@pytest.mark.skipif(shutil.which("node") is None or shutil.which("npm") is None, reason="needs node and npm")
def test_a_client_in_javascript(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "javascript", tmp_path / "javascript")
    install = ["npm", "install", "--no-audit", "--no-fund"]
    installed = subprocess.run(install, capture_output=True, text=True, cwd=folder)
    if installed.returncode != 0:
        pytest.skip(f"zeromq cannot be had: {installed.stderr.strip().splitlines()[-1]}")
    lines = ran("node", "client.js", daemon.endpoint, 20, cwd=folder)
    assert lines[0] == "identity: x FP32 [1,3,8,8]"
    assert echoed(lines, 20)


HEADERS: Final = [Path("/usr/include") / name for name in ("zmq.h", "nlohmann/json.hpp")]


@pytest.mark.long
@pytest.mark.skipif(
    shutil.which("g++") is None or not all(header.exists() for header in HEADERS),
    reason="needs g++, libzmq3-dev and nlohmann-json3-dev",
)
def test_a_client_in_cpp(daemon: DaemonProcess, tmp_path: Path) -> None:
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Werror")
    ran("g++", *strict, EXAMPLES / "cpp" / "client.cpp", "-lzmq", "-o", tmp_path / "client")
    lines = ran(tmp_path / "client", daemon.endpoint, 20)
    assert lines[0] == "identity: x [1,3,8,8]"
    assert echoed(lines, 20)
