"""The `shisha-rt` command. All exit statuses are decided here, once.

0: done; 1: failure; 2: bad input, reported in exactly one line on standard error; 130: interrupted; 143: ended by
SIGTERM (`serve`: 0 at both). A traceback means a bug of ours. One file per command; heavy modules are imported inside
the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shisha_rt import __version__
from shisha_rt.checked import printable
from shisha_rt.cli.grouped_help import GroupedCommand, GroupedCommands
from shisha_rt.cli.progress import end_progress
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.process.parent import MORE_PROCESSES, NO_THREAD, exit_at_signals

_NAME = "shisha-rt"
_PATH_ERRORS: Final = frozenset(
    {errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS}
)
_EXPECTED_OF_SYSTEM: Final[Mapping[int, str]] = {
    errno.EAGAIN: MORE_PROCESSES,
    errno.ENOENT: "expected a folder that may be written, which TMPDIR names",  # raised by tempfile
    errno.ENOMEM: "expected more memory, or a limit that allows more (ulimit -v)",
}
_EXIT_FAILURE, _EXIT_BAD_INPUT, _EXIT_INTERRUPTED = 1, 2, 130

_STATUSES: Final = "Exit status: 0 done; 1 {}; 2 bad input: one line says what, and what was expected."
_NO_DAEMON: Final = "no daemon answers"
_SERVE: Final = "Serve and call"
_WATCH: Final = "Watch and steer a daemon"
_PAPER: Final = "Look into a model, and plan on paper"
_SET_UP: Final = "Set up"
_COMMANDS: Final[Sequence[tuple[str, str, str, str, str]]] = (
    ("check", "check.check_command", _SERVE, "the engine cannot run MODEL", "layers, serve; docs/models.md"),
    ("serve", "serve", _SERVE, "the daemon could not go on", "status, top, submit, service; docs/cli.md"),
    ("submit", "submit", _SERVE, f"{_NO_DAEMON}, or a frame ended in an error", "status; docs/wire.md"),
    ("compare", "compare", _SERVE, "MODEL cannot be served", "serve, tuner; docs/performance.md"),
    ("demo", "demo", _SERVE, "a fault was found", "serve, top; README.md"),
    ("status", "status", _WATCH, _NO_DAEMON, "top, events; docs/plans.md"),
    ("top", "top", _WATCH, _NO_DAEMON, "status, events, tuner"),
    ("events", "events", _WATCH, _NO_DAEMON, "status, tuner; docs/wire.md"),
    ("tuner", "tuner", _WATCH, f"{_NO_DAEMON}, or it refuses", "events; docs/plans.md"),
    ("plan get", "live_plan", _WATCH, _NO_DAEMON, "plan set, status; docs/plans.md"),
    ("plan set", "live_plan", _WATCH, f"{_NO_DAEMON}, or it refuses the plan", "plan get, tuner; docs/plans.md"),
    ("place set", "live_plan", _WATCH, f"{_NO_DAEMON}, or it refuses", "status; docs/machines.md"),
    ("models", "models", _WATCH, _NO_DAEMON, "serve, status; docs/several-models.md"),
    ("models load", "models", _WATCH, f"{_NO_DAEMON}, or the model cannot be served", "docs/several-models.md"),
    ("models undo", "models", _WATCH, f"{_NO_DAEMON}, or it refuses", "models load; docs/several-models.md"),
    ("models unload", "models", _WATCH, f"{_NO_DAEMON}, or it refuses", "models load; docs/several-models.md"),
    ("layers", "layers", _PAPER, "MODEL could not be built or written", "costs, plan; docs/models.md"),
    ("costs", "costs", _PAPER, "MODEL could not be run", "plan; docs/machines.md"),
    ("plan", "plan", _PAPER, "there is no plan, or none was found in time", "costs, serve; docs/plans.md"),
    ("place", "place", _PAPER, "there is no assignment, or none was found in time", "serve; docs/machines.md"),
    ("plan schedule", "plan_schedule", _PAPER, "there is no schedule", "plan, serve; docs/plans.md"),
    ("place split", "place_split", _PAPER, "there is no split", "place; docs/plans.md"),
    ("cache", "cache", _SET_UP, "something could not be removed", "serve; docs/cli.md"),
    ("service", "service", _SET_UP, "it failed", "serve; docs/install.md"),
)
"""Each command's name; module, with the function if it is named differently; group; meaning of status 1; references."""

_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--threads", "--cores", "--workers"), "cores and threads: a machine file, --machine FILE"),
    "--batch-size": "the batch of the model is a dimension: --dim N=8; frames that share a run: --batch 8",
    "--port": "--endpoint tcp://127.0.0.1:PORT; for HTTP: --http PORT",
    "--host": "--endpoint tcp://HOST:PORT; for HTTP: --http HOST:PORT",
    "--model": "the model is an argument without a name",
    **dict.fromkeys(("--gpu", "--device", "--cuda"), "it runs on CPUs only; engines of a place: docs/engines.md"),
}
"""What to use instead of options that other model servers have."""
_NO_ACTION: Final[Mapping[str, str]] = {
    "tuner": "alone it shows the tuner, and --alpha, --strategy and --objective set it",
}
"""By command: what is done without one of its actions."""
_CLOSE: Final = 0.8
"""Least similarity (difflib's ratio) of an option to be suggested for an unknown one."""
_MISSED_COMMAND: Final = re.compile("Got unexpected extra argument|No such command|Missing command")
_BAD_CHOICE: Final = re.compile(r"'(?P<value>[^']*)' is not one of (?P<choices>'.*')\.")
_MOST_NAMED: Final = 3
"""Most commands that are named as those which have an option."""

_NAMES: Final = frozenset(name for name, *_ in _COMMANDS)
_KEYS: Final = "keys new"
"""A command of a group of its own."""
_TWO_WORDS: Final = frozenset(name for name in _NAMES if " " in name)
"""Commands of two words: the second distinguishes them from one with an argument, as `plan set` from `plan MODEL`."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{_NAME} {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve an ONNX model on CPU cores, and re-plan how they share it while it serves."""


def command_line(only: str | None = None) -> typer.Typer:
    """All commands, or `only` the one of this name: importing all takes longer than most commands run."""
    made = typer.Typer(
        name=_NAME,
        cls=GroupedCommands,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_CONTEXT,
    )
    made.callback()(_options)
    for name, where, group, failure, further in _COMMANDS:
        if only in (None, name):
            module, _, function = where.partition(".")
            command = getattr(importlib.import_module(f"shisha_rt.cli.{module}"), function or name.replace(" ", "_"))
            made.command(
                name,
                cls=GroupedCommand,
                epilog=f"{_STATUSES.format(failure)}\n\nSee also: {further}.",
                context_settings={"ignore_unknown_options": name == "service"},
                rich_help_panel=group,
            )(command)
    if only is None:
        made.add_typer(importlib.import_module("shisha_rt.cli.keys").keys, rich_help_panel=_SET_UP)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (default: this process's arguments); returns the exit status."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # the encoding may have no character for a box or a bar
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="surrogateescape")  # a path may have bytes that are no text
    try:
        with exit_at_signals(0 if _is_service(argv) else None):
            status = _run(argv)
        sys.stdout.flush()  # here, where a BrokenPipeError is still handled
    except (BadInput, Failure) as error:
        return _say_error(error, argv)
    except (KeyboardInterrupt, typer.Abort):
        return 0 if _is_service(argv) else _EXIT_INTERRUPTED
    except BrokenPipeError:
        return _abandon_output()
    except OSError as error:  # that no command handles: about a path, or from writing the output
        return _say_os_error(error, argv)
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        return _say_error(Failure(f"{error}; {MORE_PROCESSES}"), argv)
    finally:
        end_progress()
    return status


def _is_service(argv: Sequence[str] | None) -> bool:
    """Whether a signal is the end that the command is meant to have, so that its status is 0."""
    return [*(sys.argv[1:] if argv is None else argv)][:1] == ["serve"]


def _open_closed_streams() -> None:
    """Open /dev/null as each standard stream that was closed at the start, so that no other file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null = Path(os.devnull).open(mode)  # noqa: SIM115 (stays open; has the lowest free number: the stream's)
            os.set_inheritable(null.fileno(), True)
            setattr(sys, name, null)


def _say_os_error(error: OSError, argv: Sequence[str] | None) -> int:
    if error.errno in (errno.EMFILE, errno.ENFILE):  # not the fault of the file that was opened next
        return _say_error(Failure(f"{error.strerror}; expected a limit that allows more (ulimit -n)"), argv)
    expected = _EXPECTED_OF_SYSTEM.get(error.errno or 0)
    if error.filename is None and expected is not None:
        return _say_error(Failure(f"{error.strerror}; {expected}"), argv)
    if error.filename is None:
        _abandon_output()  # standard output is what could not be written
        return _say(f"{_NAME}: standard output: {error.strerror or error}", Error.FAILED, _EXIT_FAILURE)
    message = f"{os.fsdecode(error.filename)}: {error.strerror}"
    is_of_path = error.errno in _PATH_ERRORS
    return _say_error(BadInput(f"{message}; expected another path") if is_of_path else Failure(message), argv)


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if " ".join(words[:2]) in _TWO_WORDS:
        words[:2] = [" ".join(words[:2])]
    command = typer.main.get_command(command_line(words[0] if words[0] in _NAMES else None))
    _refuse_empty(words, _flags(command, words))
    _refuse_misspelt(words)
    try:
        # Not standalone: typer would print its errors as boxes of several lines.
        result = command.main(args=words, prog_name=_NAME, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else _NAME
        message = f"{where}: {_in_our_words(error)} (try {where} --help)"
        _print_error(Error.BAD_INPUT, message, words)
        return _say(message, Error.BAD_INPUT, _EXIT_BAD_INPUT)
    except SystemExit as end:  # typer's own answer to a broken pipe
        return end.code if isinstance(end.code, int) else _EXIT_FAILURE
    return result if isinstance(result, int) else 0


def _flags(command: Any, words: Sequence[str]) -> Set[str]:
    """The options without a value of the command that `words` name. `command`: a Click group; typer exports no type."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = [parameter for parameter in command.params if getattr(parameter, "is_flag", False)]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def _refuse_empty(words: Sequence[str], flags: Set[str]) -> None:
    """Raises BadInput for an empty option or argument, as from an unset variable: typer takes it for the folder `.`."""
    for before, word in pairwise(["", *words]):
        option, equals, value = word.partition("=")
        is_value = before.startswith("--") and "=" not in before and before not in flags
        if not word and not is_value:
            raise BadInput("an argument is empty; expected text", Error.WRONG_OPTION)
        if not word or (option.startswith("--") and equals and not value):
            raise BadInput(f"{option or before}: is empty; expected a value", Error.WRONG_OPTION)


def _refuse_misspelt(words: Sequence[str]) -> None:
    """Raises BadInput for a second word of a command that is misspelt, as in `plan ste`, and names no file."""
    seconds = _second_words(words[0])
    word = words[1] if words[1:] else ""
    close = difflib.get_close_matches(word, seconds) if word not in seconds else ()
    if close and not word.startswith("-") and not Path(word).exists():
        meant = " or ".join(f"{words[0]} {second}" for second in close)
        raise BadInput(f"{words[0]} {word}: no such command or file; did you mean {meant}?", Error.BAD_INPUT)


def _second_words(first: str) -> Sequence[str]:
    return sorted(name.split()[1] for name in {*_TWO_WORDS, _KEYS} if name.split()[0] == first)


def _in_our_words(error: typer.TyperException) -> str:
    message = error.format_message()
    name = getattr(getattr(error, "ctx", None), "info_name", None) or ""
    possible: Sequence[str] | None = getattr(error, "possibilities", None)
    if possible is not None:  # an unknown option, for which typer suggests even those that are hardly similar
        option = error.option_name  # type: ignore[attr-defined]  # of a class that typer does not export
        close = difflib.get_close_matches(option, possible, cutoff=_CLOSE)
        close_names = f"did you mean {' or '.join(close)}?" if close else ""
        instead = _INSTEAD.get(option) or close_names or _who_has(option, error.ctx)  # type: ignore[attr-defined]
        message = f"{error.message}{f'; {instead}' if instead else ''}"
    elif bad := _BAD_CHOICE.search(message):
        close = difflib.get_close_matches(bad["value"], re.findall("'(.*?)'", bad["choices"]), n=1)
        instead = f"did you mean {close[0]}?" if close else _NO_ACTION.get(name, "")
        message = f"{message.rstrip('.')}{f'; {instead}' if instead else ''}"
    elif _MISSED_COMMAND.match(message) and (seconds := _second_words(name)):
        message = f"{message.rstrip('.')}; commands: {', '.join(f'{name} {second}' for second in seconds)}"
    message = message.replace("Value error, ", "")  # typer's validator begins messages about a bad choice so
    return message[:1].lower() + message[1:].rstrip(".")


def _who_has(option: str, context: Any) -> str:
    """The commands that have an option which the command of `context` lacks, those of the same first word first."""
    commands = typer.main.get_command(command_line()).commands  # type: ignore[attr-defined]  # it is a group
    names = [name for name, command in commands.items() if any(option in each.opts for each in command.params)]
    names.sort(key=lambda name: name.split()[0] != context.info_name)
    return f"it is an option of: {', '.join(names[:_MOST_NAMED])}" if names else ""


def _say_error(error: BadInput | Failure, argv: Sequence[str] | None) -> int:
    """As `_say`, and `_print_error` unless the result mentions the failure; returns the status."""
    if isinstance(error, BadInput) or not error.printed:
        _print_error(error.kind, str(error), sys.argv[1:] if argv is None else argv)
    return _say(f"{_NAME}: {error}", error.kind, _EXIT_BAD_INPUT if isinstance(error, BadInput) else _EXIT_FAILURE)


def _print_error(kind: str, message: str, argv: Sequence[str]) -> None:
    """With `--json`, print an error as an object on standard output."""
    if "--json" in argv:
        print(json.dumps({"error": {"kind": str(kind), "message": _one_line(message)}}), flush=True)


def _say(message: str, kind: str, status: int) -> int:
    """Print `message` and the error's kind as one line on standard error; returns `status`."""
    print(f"{_one_line(message)} [{kind}]", file=sys.stderr)
    return status


def _one_line(message: str) -> str:
    """Without line breaks; other characters that are no text, as paths may have, are escaped."""
    return printable(" ".join(message.split()))


def _abandon_output() -> int:
    """Send standard output to /dev/null, as nobody reads it any more: else the interpreter's last flush would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return _EXIT_FAILURE
