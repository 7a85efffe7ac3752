"""The Containerfile, as far as it can be held against the project without building it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Final

import typer

from shisha_rt.cli.app import command_line

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())
STEPS: Final = [
    (word, " ".join(rest.split()))
    for word, rest in re.findall(
        r"^([A-Z]+) ((?:.*\\\n)*.*)$", (ROOT / "Containerfile").read_text().replace("\\\n", ""), re.MULTILINE
    )
]


def steps(word: str) -> list[str]:
    return [rest for step, rest in STEPS if step == word]


def copied() -> set[str]:
    """What comes from the checkout."""
    return {source for copy in steps("COPY") for source in copy.split()[:-1]}


def test_what_is_copied_is_there_and_is_not_ignored() -> None:
    assert {source for source in copied() if not (ROOT / source).exists()} == set()
    kept = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == copied()


def test_the_wheel_gets_all_that_it_is_made_of() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], PROJECT["project"]["readme"], "pyproject.toml"}
    assert needed == copied()


def test_extras_that_it_names_are_the_projects() -> None:
    named = re.findall(r"EXTRAS=([a-z,]+)", (ROOT / "Containerfile").read_text())
    assert named
    assert {extra for names in named for extra in names.split(",")} <= set(PROJECT["project"]["optional-dependencies"])


def test_it_runs_commands_that_there_are_as_no_root_and_gets_its_signals() -> None:
    (entry,), (command,), (health,) = steps("ENTRYPOINT"), steps("CMD"), steps("HEALTHCHECK")
    assert json.loads(entry) == ["shisha-rt"]  # a list: no shell stands between it and a signal
    name, *words = json.loads(health.partition("CMD ")[2])
    assert name == "shisha-rt"
    commands = typer.main.get_group(command_line()).commands
    for called, *arguments in (json.loads(command), words):
        assert commands[called].make_context(called, arguments)
    assert steps("USER") == ["10001:10001"]
    served = json.loads(command)
    assert steps("EXPOSE") == [served[served.index("--http") + 1].rpartition(":")[2]]
