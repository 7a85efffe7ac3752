"""What the papers' ring offers by name is there, and a daemon that serves imports nothing of it unasked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shisha_rt.studies import HOMES, study


@pytest.mark.parametrize("name", sorted(HOMES))
def test_what_is_offered_is_there(name: str) -> None:
    assert study(name).__name__ == name


def test_what_is_not_offered() -> None:
    with pytest.raises(KeyError, match="nothing_such"):
        study("nothing_such")


@pytest.mark.parametrize("module", ["daemon.server", "daemon.children.tuner", "daemon.children.placer", "http.process"])
def test_what_serves_imports_no_papers(module: str) -> None:
    code = f"import sys, shisha_rt.{module}; print([name for name in sys.modules if '.papers' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
