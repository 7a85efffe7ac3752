"""An engine that dies of a model in every form: one line that says so, exit status 1, and nothing is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shisha_rt.cache import cache_folder
from tests.cli.conftest import Run
from tests.wording import says

_DYING = """
import pathlib, signal, sys

def hook(event, arguments):
    if event == "exec" and arguments[0].co_filename == sys.argv[0] and sys.argv[0].endswith("stages/jobs/compile.py"):
        (pathlib.Path(sys.argv[2]) / "half.bin").write_bytes(b"half")
        signal.raise_signal(signal.SIGSEGV)

sys.addaudithook(hook)
"""
"""As it is run, not as the fork server imports it."""


@pytest.fixture
def _dying(tmp_path: Path, tiny_model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that compiles a model really dies, whatever the form, with some of its files written."""
    folder = tmp_path / "dying"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_DYING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))


@pytest.mark.usefixtures("_dying")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["serve", "--endpoint", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"], id="serve"),
        pytest.param(["plan", "--machine", "this-machine"], id="plan"),
        pytest.param(["costs"], id="costs"),
    ],
)
def test_what_needs_the_engine_says_so_in_one_line(words: list[str], run: Run, tiny_model: Path) -> None:
    command, *options = words
    ran = run(command, tiny_model, *options)
    assert (ran.status, ran.out) == (1, "")
    last = ran.err.splitlines()[-1]
    died = "… (SIGSEGV)"
    assert last == says(
        f"shisha-rt: tiny: the engine … form: prepacked ({died}), external ({died}), "
        f"as_is ({died}), unoptimised ({died})"
    )
    assert "Traceback" not in ran.err
    assert [file for file in cache_folder().rglob("*") if not file.is_dir()] == []


@pytest.mark.usefixtures("_dying")
def test_what_needs_no_engine_goes_on(run: Run, tiny_model: Path) -> None:
    ran = run("layers", tiny_model, "--json")
    assert ran.status == 0
    assert "form" not in ran.object
