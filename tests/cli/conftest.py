"""Run a command in this process, and see all that its user would see."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.cli import progress
from shisha_rt.cli.app import main
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import write_identity_model


@dataclass(frozen=True)
class Ran:
    """`err`: what was said on standard error, without the `kind` of the error at its end."""

    status: int
    out: str
    err: str
    kind: str = ""

    @property
    def object(self) -> Any:
        """Standard output as the one JSON object that it has to be."""
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line of bad input."""
        assert self.status == 2
        return self.only_error

    def complaint_of(self, kind: str) -> str:
        """The same, of bad input of this kind."""
        assert self.kind == kind
        return self.complaint

    @property
    def only_error(self) -> str:
        """The one line of an error that left no result: with `--json`, the same as an object on standard output."""
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        line = self.err.rstrip("\n")
        if self.out:
            error = self.object["error"]
            assert line == f"shisha-rt: {error['message']}"
            assert self.kind == error["kind"]
        return line


Run = Callable[..., Ran]
_KIND_SHOWN: Final = re.compile(r" \[([a-z_]+)\]\n\Z")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(progress, "_AGAIN_S", 1e6)  # what is said must not hang on how busy the host is

    def command(*argv: object) -> Ran:
        status = main([str(word) for word in argv])
        captured = capsys.readouterr()
        shown = _KIND_SHOWN.search(captured.err)
        said = captured.err if shown is None else f"{captured.err[: shown.start()]}\n"
        return Ran(status, captured.out, said, "" if shown is None else shown[1])

    return command


@pytest.fixture
def costs_file(tmp_path: Path) -> Path:
    """Four layers, cut 0 illegal; places slow, fast, slow."""
    path = tmp_path / "COSTS.json"
    path.write_text(
        json.dumps(
            {
                "layers": [{"name": name, "weight": weight} for name, weight in zip("abcd", (1, 5, 2, 2), strict=True)],
                "places": [{"name": "p", "rank": 2}, {"name": "q", "rank": 1}, {"name": "r", "rank": 2}],
                "time_s": [[1, 0.5, 3]] * 4,
                "transfer_s": [None, 0.5, 0.25],
            }
        )
    )
    return path


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one test has compiled and measured the next one finds there."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, also where another fixture that comes before this one has set a cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def tiny_model(tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Conv, Relu, Conv, Relu, Conv over a batch of unknown size `N`, in the shared cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    weights = np.ones((4, 4, 3, 3), np.float32)
    nodes = []
    for i in range(3):
        source = "x" if i == 0 else f"r{i - 1}"
        nodes.append(helper.make_node("Conv", [source, f"w{i}"], [f"c{i}"], name=f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}"))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 8, 8])],
        [helper.make_tensor_value_info("r2", TensorProto.FLOAT, ["N", 4, 8, 8])],
        [numpy_helper.from_array(weights * (i + 1), f"w{i}") for i in range(3)],
    )
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all: `identity` (x -> y) on places fast0 and slow0. Tests only send it frames and questions."""
    folder = tmp_path_factory.mktemp("daemon")
    machine = machine_file(folder, ["fast0", "slow0"])
    with DaemonProcess(folder, write_identity_model(folder), "--machine", machine) as process:
        yield process


def rewritten(path: Path, **changes: Any) -> Path:
    """A file of JSON with some of its keys set anew."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path
