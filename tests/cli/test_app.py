"""Every way in which a command can end: its exit status, and what it leaves on which stream."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from shisha_rt import __version__
from shisha_rt.cli.app import app
from shisha_rt.errors import Failure
from tests.cli.conftest import Run

COMMANDS = (
    "check",
    "layers",
    "costs",
    "plan",
    "place",
    "serve",
    "service",
    "submit",
    "status",
    "top",
    "events",
    "tuner",
    "demo",
)
MAIN = "import sys; from shisha_rt.cli.app import main; sys.exit(main())"


@pytest.mark.parametrize("argv", [("--help",), *((command, "--help") for command in COMMANDS)])
def test_help(run: Run, argv: tuple[str, ...]) -> None:
    ran = run(*argv)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Usage: shisha-rt")
    if len(argv) > 1:
        assert f"Examples:\n    shisha-rt {argv[0]}" in ran.out
        assert "Exit status: 0" in ran.out
        assert "See also: " in ran.out


def test_every_command_has_its_help_tested() -> None:
    assert set(typer.main.get_group(app).commands) == {*COMMANDS, "keys"}  # which is a group


def test_version(run: Run) -> None:
    ran = run("--version")
    assert (ran.status, ran.out) == (0, f"shisha-rt {__version__}\n")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), "shisha-rt: missing command (try shisha-rt --help)"),
        (("lay",), "shisha-rt: no such command 'lay'"),
        (("--bogus",), "shisha-rt: no such option: --bogus"),
        (("layers",), "shisha-rt layers: missing argument 'MODEL'"),
        (("layers", "a.onnx", "b.onnx"), "shisha-rt layers: got unexpected extra argument"),
        (("plan", "--bogus"), "shisha-rt plan: no such option: --bogus"),
        (("plan", "--stages"), "shisha-rt: option '--stages' requires an argument"),
        (("plan", "--stages", "x"), "shisha-rt plan: invalid value for '--stages'"),
        (("plan", "--strategy", "x"), "shisha-rt plan: invalid value for '--strategy': 'x' is not one of 'seed'"),
        (("plan", "--assign", "x"), "shisha-rt plan: invalid value for '--assign': 'x' is not one of 'weight'"),
        (("plan", "--costs", "two\nlines.json"), "shisha-rt: two lines.json: cannot be read"),
    ],
)
def test_bad_usage_is_one_line(run: Run, argv: tuple[str, ...], expected: str) -> None:
    assert run(*argv).complaint.startswith(expected)


def ended_by(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `plan --costs` end with `error`."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("shisha_rt.cli.plan._problem_of_costs", fails)


def test_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_by(monkeypatch, Failure("the engine said\nno"))
    ran = run("plan", "--costs", "c.json")
    assert (ran.status, ran.out, ran.err) == (1, "", "shisha-rt: the engine said no\n")


def test_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_by(monkeypatch, KeyboardInterrupt())
    ran = run("plan", "--costs", "c.json")
    assert (ran.status, ran.out, ran.err) == (130, "", "")


def test_a_bug_is_not_dressed_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_by(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run("plan", "--costs", "c.json")


@pytest.mark.parametrize("argv", [("--version",), ("plan", "--costs", "COSTS.json", "--json")])
def test_a_reader_who_has_gone_away_hears_nothing(costs_file: Path, argv: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *argv],
        cwd=costs_file.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() in (0, 1)


def test_help_and_completion_import_nothing_heavy() -> None:
    heavy = "{'numpy', 'onnx', 'zmq', 'rich', 'onnxruntime'}"
    code = (
        "import sys; from shisha_rt.cli.app import main; main(['plan', '--help']); "
        "from shisha_rt.cli.completion import offer_machines, offer_models; offer_machines(''); offer_models(''); "
        f"print({heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
