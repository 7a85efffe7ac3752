"""Every way in which a command can end: its exit status, and what it leaves on which stream."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from shisha_rt import __version__
from shisha_rt.cli.app import command_line
from shisha_rt.errors import Error, Failure
from tests.cli.conftest import Run

COMMANDS = tuple(name for name in typer.main.get_group(command_line()).commands if name != "keys")  # which is a group
MAIN = "import sys; from shisha_rt.cli.app import main; sys.exit(main())"


@pytest.mark.parametrize("argv", [("--help",), *((command, "--help") for command in COMMANDS)])
def test_help(run: Run, argv: tuple[str, ...]) -> None:
    ran = run(*(word for words in argv for word in words.split()))
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Usage: shisha-rt")
    if len(argv) > 1:
        assert f"Examples:\n    shisha-rt {argv[0]}" in ran.out
        assert "Exit status: 0" in ran.out
        assert "See also: " in ran.out


def test_no_arguments_ask_for_help(run: Run) -> None:
    assert run() == run("--help") == run("-h")
    assert run("serve", "-h") == run("serve", "--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen(run: Run, command: str) -> None:
    lines = run(*command.split(), "--help").out.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 110


def test_all_options_are_explained_on_request(run: Run) -> None:
    common, every = (run("serve", option).out for option in ("--help", "--help-all"))
    assert "--leases DIR " not in common
    assert "--leases DIR " in every
    explained = {line.split()[0] for line in every.splitlines() if line.startswith("  --")}
    assert explained <= set(re.findall(r"--[a-z-]+[a-z]", common))


def test_version(run: Run) -> None:
    ran = run("--version")
    assert (ran.status, ran.out) == (0, f"shisha-rt {__version__}\n")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("lay",), "shisha-rt: no such command"),
        (("--bogus",), "shisha-rt: no such option: --bogus"),
        (
            ("serve", "m.onnx", "--threads", "4"),
            "shisha-rt serve: no such option: --threads; cores and threads: a machine",
        ),
        (
            ("serve", "m.onnx", "--batch-size", "8"),
            "shisha-rt serve: no such option: --batch-size; the batch of the model is",
        ),
        (
            ("serve", "m.onnx", "--port", "80"),
            "shisha-rt serve: no such option: --port; --endpoint tcp://127.0.0.1:PORT",
        ),
        (
            ("serve", "m.onnx", "--machin", "x"),
            "shisha-rt serve: no such option: --machin; did you mean --machine? (try",
        ),
        (
            ("check", "resnet50"),
            "shisha-rt: resnet50: no such file",
        ),
        (("tuner", "set"), "shisha-rt tuner: invalid value for"),
        (("check", "zoo:ResNet-50"), "shisha-rt: zoo:ResNet-50: no such network"),
        (("layers",), "shisha-rt layers: missing argument 'MODEL'"),
        (("layers", "a.onnx", "b.onnx"), "shisha-rt layers: got unexpected extra"),
        (("plan", "--bogus"), "shisha-rt plan: no such option: --bogus"),
        (("plan", "--stages"), "shisha-rt: option '--stages' requires an argument"),
        (("plan", "--stages", "x"), "shisha-rt plan: invalid value for '--stages'"),
        (("plan", "--strategy", "x"), "shisha-rt plan: invalid value for '--strategy': 'x' is not one"),
        (("plan", "--assign", "x"), "shisha-rt plan: invalid value for '--assign': 'x' is not one"),
        (("plan", "--costs", "two\nlines.json"), "shisha-rt: two lines.json: cannot be read"),
        (("plan", "--costs", "red\x1b[31m\x9b0m.json"), r"shisha-rt: red\x1b[31m\x9b0m.json: "),
    ],
)
def test_bad_usage_is_one_line(run: Run, argv: tuple[str, ...], expected: str) -> None:
    ran = run(*argv)
    assert ran.complaint.startswith(expected)
    assert ran.kind in list(Error)


def test_an_option_of_other_commands_names_those(run: Run) -> None:
    """Of `plan` those of two words come first: whoever wants the live plan looks for them."""
    complaint = run("plan", "--endpoint", "x").complaint
    assert 0 < complaint.find("plan get") < complaint.find("plan set")
    assert "submit" in run("plan", "--frames", "3").complaint
    assert ";" not in run("plan", "--bogus").complaint


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("plan ste p.json", ["plan set"]),
        ("plan schedules m.onnx", ["plan schedule"]),
        ("plan search m.onnx", ["plan get", "plan schedule", "plan set"]),
        ("place sett core0", ["place set"]),
        ("models loads m", ["models load"]),
        ("models list", ["models load", "models undo", "models unload"]),
        ("keys news me", ["keys new"]),
        ("keys", ["keys new"]),
        ("tuner puase", ["did you mean pause?"]),
        ("tuner set", ["--alpha", "--strategy", "--objective"]),
        ("plan m.onnx --strategy anealing", ["did you mean annealing?"]),
        ("serve m.onnx --machine big-litle", ["did you mean big-little?"]),
    ],
)
def test_a_near_miss_is_answered_by_what_may_be_meant(run: Run, tiny_model: Path, typed: str, named: list[str]) -> None:
    complaint = run(*typed.replace("m.onnx", str(tiny_model)).split()).complaint
    for words in named:
        assert words in complaint


def test_a_file_that_is_called_nearly_like_a_command(
    run: Run, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sett").write_bytes(tiny_model.read_bytes())
    assert run("plan", "sett", "--strategy", "seed").status == 0


def test_no_open_file_left_is_said_without_a_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_by(monkeypatch, OSError(errno.EMFILE, os.strerror(errno.EMFILE), os.devnull))
    ran = run("plan", "--costs", "c.json")
    assert (ran.status, ran.kind) == (1, Error.FAILED)
    assert os.devnull not in ran.err
    assert "ulimit -n" in ran.err


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), os.strerror(errno.ENOMEM)),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "pids.max"),
        (RuntimeError("can't start new thread"), "pids.max"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "TMPDIR"),
    ],
)
def test_what_the_system_refuses_is_not_said_of_standard_output(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, names: str
) -> None:
    ended_by(monkeypatch, error)
    ran = run("plan", "--costs", "c.json", "--json")
    assert (ran.status, ran.object["error"]["kind"]) == (1, Error.FAILED)
    assert names in ran.err
    assert "standard output" not in ran.err


def ended_by(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `plan --costs` end with `error`."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("shisha_rt.cli.plan._problem_of_costs", fails)


def test_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_by(monkeypatch, Failure("the engine said\nno"))
    ran = run("plan", "--costs", "c.json")
    assert (ran.status, ran.out, ran.err, ran.kind) == (1, "", "shisha-rt: the engine said no\n", Error.FAILED)


@pytest.mark.parametrize("command", ["layers", "costs", "check", "serve", "service"])
def test_a_path_that_the_system_refuses_is_one_line(run: Run, command: str) -> None:
    assert "a" * 300 in run(command, "a" * 300).complaint


def test_an_error_of_usage_is_an_object_too_with_json(run: Run) -> None:
    ran = run("plan", "M", "--strategy", "nope", "--json")
    assert (ran.status, ran.object["error"]["kind"]) == (2, "bad_input")


def in_a_process(*argv: str, stdout: int | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *argv],
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
        check=False,
    )


def test_output_that_cannot_be_written_is_a_failure_in_one_line(costs_file: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = in_a_process("plan", "--costs", str(costs_file), "--json", stdout=full.fileno())
    assert (ran.returncode, ran.stderr) == (
        1,
        f"shisha-rt: standard output: {os.strerror(errno.ENOSPC)} [failed]\n".encode(),
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str) -> None:
    """Else the first files of a daemon would have their numbers, and its children would write into those."""
    program = f"import os; {MAIN.replace('sys.exit(main())', 'main()')}; [os.fstat(number) for number in range(3)]"
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program, "--version"],
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_terminal_without_the_characters_of_a_picture_has_others(costs_file: Path) -> None:
    ran = in_a_process("plan", "--costs", str(costs_file), PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.isascii()


def test_a_path_that_is_no_text_is_printed_as_it_is(tmp_path: Path) -> None:
    ran = in_a_process("cache", PYTHONIOENCODING="utf-8", XDG_CACHE_HOME=str(tmp_path / "\udcff"))
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert os.fsencode(tmp_path / "\udcff") in ran.stdout


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
