"""The `shisha-rt` command: every way it can end is decided here, once.

0 done; 1 failure; 2 bad input, said in exactly one line on standard error; 130 interrupted, 143 by SIGTERM. A
traceback means a bug of ours. One file per command; heavy modules are imported inside the commands, so that
`--help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Annotated, Final

import typer

from shisha_rt import __version__
from shisha_rt.cli.check import check_command
from shisha_rt.cli.costs import costs
from shisha_rt.cli.demo import demo
from shisha_rt.cli.events import events
from shisha_rt.cli.keys import keys
from shisha_rt.cli.layers import layers
from shisha_rt.cli.place import place
from shisha_rt.cli.plan import plan
from shisha_rt.cli.serve import serve
from shisha_rt.cli.service import service
from shisha_rt.cli.status import status
from shisha_rt.cli.submit import submit
from shisha_rt.cli.top import top
from shisha_rt.cli.tuner import tuner
from shisha_rt.errors import BadInput, Failure

_NAME = "shisha-rt"
_EXIT_FAILURE, _EXIT_BAD_INPUT, _EXIT_INTERRUPTED, _EXIT_TERMINATED = 1, 2, 130, 143

_STATUSES: Final = "Exit status: 0 done; 1 {}; 2 bad input: one line says what, and what was expected."
_NO_DAEMON: Final = "no daemon answers"
_COMMANDS: Final[Sequence[tuple[Callable[..., object], str, str]]] = (
    (check_command, "the engine cannot run MODEL", "layers, serve; docs/models.md"),
    (layers, "MODEL could not be built or written", "costs, plan; docs/models.md"),
    (costs, "MODEL could not be run", "plan; docs/machines.md"),
    (plan, "there is no plan, or none was found in time", "costs, serve; docs/plans.md"),
    (place, "there is no assignment, or none was found in time", "serve; docs/machines.md"),
    (serve, "the daemon could not go on", "status, top, submit, service; docs/cli.md"),
    (service, "it failed", "serve; docs/install.md"),
    (submit, f"{_NO_DAEMON}, or a frame ended in an error", "status; docs/wire.md"),
    (status, _NO_DAEMON, "top, events; docs/plans.md"),
    (top, _NO_DAEMON, "status, events, tuner"),
    (events, _NO_DAEMON, "status, tuner; docs/wire.md"),
    (tuner, f"{_NO_DAEMON}, or it refuses", "events; docs/plans.md"),
    (demo, "a fault was found", "serve, top; README.md"),
)
"""Each with what its status 1 means, and where to read on."""

app = typer.Typer(name=_NAME, rich_markup_mode=None, pretty_exceptions_enable=False)
for command, failure, further in _COMMANDS:
    app.command(
        command.__name__.removesuffix("_command"),
        epilog=f"{_STATUSES.format(failure)}\n\nSee also: {further}.",
        context_settings={"ignore_unknown_options": command is service},
    )(command)
app.add_typer(keys)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{_NAME} {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve a CNN as a pipeline over unequal cores, and keep making it faster while it serves."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (default: this process's arguments); returns the exit status."""
    try:
        with _put_away_at_sigterm():
            status = _run(argv)
        sys.stdout.flush()  # here, where a reader who has gone away can still be answered quietly
    except BadInput as error:
        return _say(f"{_NAME}: {error}", _EXIT_BAD_INPUT)
    except Failure as error:
        return _say(f"{_NAME}: {error}", _EXIT_FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        return _abandon_output()
    return status


@contextlib.contextmanager
def _put_away_at_sigterm() -> Iterator[None]:
    """What was begun, such as copies of weights in temporary folders, which would stay there else."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(argv: Sequence[str] | None) -> int:
    command = typer.main.get_command(app)
    try:
        # Not standalone: typer would print its errors as boxes of several lines.
        result = command.main(args=None if argv is None else list(argv), prog_name=_NAME, standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else _NAME
        return _say(f"{where}: {_in_our_words(error.format_message())} (try {where} --help)", _EXIT_BAD_INPUT)
    except SystemExit as end:  # typer's own answer to a broken pipe
        return end.code if isinstance(end.code, int) else _EXIT_FAILURE
    return result if isinstance(result, int) else 0


def _in_our_words(message: str) -> str:
    message = message.replace("Value error, ", "")  # how typer's validator opens what it says of a bad choice
    return message[:1].lower() + message[1:].rstrip(".")


def _say(message: str, status: int) -> int:
    """One line on standard error, whatever a message was made of; returns `status`."""
    print(" ".join(message.split()), file=sys.stderr)
    return status


def _abandon_output() -> int:
    """Nobody reads our output any more: let the interpreter's last flush go nowhere instead of complaining."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return _EXIT_FAILURE
