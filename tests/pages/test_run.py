"""What the pages show to be typed works, from the top of each page to its end, in an empty folder.

What is installed is the wheel, where a registry can be reached to make it, else the checkout.

Each page has a folder with what its commands name (a model, a machine file, the checkout's docs, examples and configs)
and a network of its own, in which the addresses that it shows are free. A daemon serves until the page starts another
one, or something that wants the cores for itself; then Ctrl-C ends it, as a reader would.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from shisha_rt.model.zoo import resolve_model
from tests.install.registry import PIP, make_wheel
from tests.pages.presumed import presumed, reason_not_to_run
from tests.pages.shown import PAGES, ROOT, Command, Program, Shown, shown_on
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("ip", "nsenter", "unshare"))
        or subprocess.run(["unshare", "--map-root-user", "--net", "true"], capture_output=True).returncode != 0,
        reason="needs network namespaces",
    ),
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("openvino", "rapidocr", "scipy", "matplotlib", "tritonclient")),
        reason="needs the extras openvino, real, solve, plot and test",
    ),
]
WITHIN_S: Final = 900.0  # the host may be busy, and a page may have thousands of frames sent
SERVES: Final = "shisha-rt serve "
WATCHES: Final = ("shisha-rt top", "shisha-rt events --follow")
"""Commands that go on until Ctrl-C."""
ALONE: Final = ("shisha-rt compare ", "shisha-rt demo", "python examples/read_text.py --picture ")
"""Commands that start a daemon of their own where the page's has been."""
MACHINE: Final = "".join(f'[[place]]\nname = "{name}"\ncores = [{k}]\nshared = true\n' for k, name in enumerate("ab"))


def runs(shown: Shown) -> bool:
    return reason_not_to_run(shown) is None and "--help" not in shown.text


TO_RUN: Final = [page for page in PAGES if any(map(runs, shown_on(page)))]


class Reader:
    """Who types what a page shows."""

    def __init__(self, folder: Path, enter: Sequence[str], packages: Path) -> None:
        self._folder = folder
        self._enter = enter
        self._daemon: subprocess.Popen[str] | None = None
        self._env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(packages),
            "XDG_RUNTIME_DIR": str(folder),
            "MPLBACKEND": "agg",
        }

    def type(self, text: str) -> None:
        """A command. Fails the test where it ends in an error, or does not end."""
        text = text.replace("ipc:///run/user/1000/", f"ipc://{self._folder}/")
        if text.startswith(SERVES):
            self.end_daemon()
            self._daemon = self._start(text)
            line = self._line_of(self._daemon)
            assert line, f"{text}: {self._said()}"
            assert json.loads(line)["ready"] is True
        elif text.partition("  ")[0] in WATCHES:
            process = self._start(text)
            assert self._line_of(process), f"{text}: {self._said()}"
            assert self._interrupted(process) in (0, 130), text
        else:
            if text.startswith(ALONE):
                self.end_daemon()
            self._run(["bash", "-ec", text], text)

    def run_program(self, program: Program) -> None:
        if program.saved_as is None:
            self._run([sys.executable, "-c", program.text], str(program))
        else:
            (self._folder / program.saved_as).write_text(program.text)
            self._run([sys.executable, program.saved_as], str(program))

    def end_daemon(self) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            assert self._interrupted(daemon) == 0, self._said()

    def kill(self) -> None:
        """Of a reader who goes amid a page: nothing goes on, a daemon's daemons neither."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.communicate()

    def _run(self, command: Sequence[str], what: str) -> None:
        done = subprocess.run(
            [*self._enter, *command],
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",  # answers may be raw tensors
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, f"{what}: status {done.returncode}\n{done.stdout}\n{done.stderr}"

    def _start(self, text: str) -> subprocess.Popen[str]:
        with (self._folder / "stderr").open("w") as stderr:
            return subprocess.Popen(
                [*self._enter, "bash", "-ec", f"exec {text}"],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def _said(self) -> str:
        return (self._folder / "stderr").read_text()

    def _line_of(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(WITHIN_S) else ""

    def _interrupted(self, process: subprocess.Popen[str]) -> int:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        return process.returncode


@pytest.fixture
def enter() -> Iterator[tuple[str, ...]]:
    """What goes before a command that is to run in a network of its own."""
    up = "ip link set lo up && echo up && exec cat"
    holder = subprocess.Popen(
        ["unshare", "--map-root-user", "--net", "sh", "-c", up], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"up\n"
    yield ("nsenter", f"--target={holder.pid}", "--user", "--net", "--preserve-credentials")
    holder.communicate()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel has."""
    folder = tmp_path_factory.mktemp("packages")
    if make_wheel(folder):
        return ROOT
    (wheel,) = folder.glob("*.whl")
    install = (*PIP, "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    subprocess.run([sys.executable, *install], check=True)
    return folder


@pytest.fixture
def reader(tmp_path: Path, enter: tuple[str, ...], packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    for name in ("docs", "configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(resolve_model("zoo:squeezenet"), tmp_path / "model.onnx")
    shutil.copy(resolve_model("zoo:text_recogniser"), tmp_path / "rec.onnx")
    for name in ("board.toml", "my-board.toml"):
        (tmp_path / name).write_text(MACHINE)
    monkeypatch.delenv("SHISHA_ENDPOINT", raising=False)
    typing = Reader(tmp_path, enter, packages)
    yield typing
    typing.kill()


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", TO_RUN, ids=lambda page: page.name)
def test_what_the_page_shows_works(page: Path, reader: Reader) -> None:
    for shown in filter(runs, shown_on(page)):
        for text in presumed(shown):
            reader.type(text)
        if isinstance(shown, Program):
            reader.run_program(shown)
        else:
            assert isinstance(shown, Command)
            reader.type(shown.text)
    reader.end_daemon()


def test_the_package_is_that_of_the_wheel(reader: Reader, packages: Path) -> None:
    reader.type(f"python -c 'import shisha_rt, stages; assert shisha_rt.__file__.startswith(\"{packages}/\")'")
