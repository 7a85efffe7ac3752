"""What the papers' ring offers by name is there, and a daemon that serves imports nothing of it unasked."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shisha_rt
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


def _calls() -> Iterator[tuple[str, ast.Call]]:
    """Calls of what is loaded by name, in all of the shipped code."""
    for path in Path(shisha_rt.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Call(func=ast.Name(id="study"), args=[ast.Constant(value=str(name))])):
                    yield name, node


def test_what_is_loaded_by_name_takes_what_it_is_called_with() -> None:
    """No type checker sees these calls."""
    calls = list(_calls())
    assert len(calls) > 15
    for name, call in calls:
        given = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
        inspect.signature(study(name)).bind(*call.args, **given)
