"""`shisha-rt top`: the pipeline while it serves and is tuned, redrawn periodically."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from shisha_rt.cli.models import expect_one_model
from shisha_rt.cli.options import DaemonOptions, takes
from shisha_rt.show.lines import plain_console
from shisha_rt.show.screen import Screen

if TYPE_CHECKING:
    from shisha_rt.client import Client


@dataclass(frozen=True, slots=True)
class TopOptions(DaemonOptions):
    interval: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=60, help="Seconds between two looks at the daemon.")
    ] = 1.0
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False


@takes(TopOptions)
def top(options: TopOptions) -> None:
    """Watch a running daemon: stages, places, and the tuner's trials.

    A bar is as long as the stage takes for a frame; the slowest stage sets the throughput. A star marks what is
    emulated. `q` or Ctrl-C ends it. Where standard output is no terminal, one frame is printed.

    \b
    Examples:
      shisha-rt top
      shisha-rt top --interval 0.2
      shisha-rt top --once
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from rich.live import Live

    console = plain_console()
    view = _View()
    with options.client() as client:
        if options.once or not console.is_terminal:
            console.print(view.look(client))
            return
        with _keys_at_once(), Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(view.look(client), refresh=True)
                if _quit_within(options.interval):
                    return


class _View:
    """The view of a daemon, as far as it has been read."""

    def __init__(self) -> None:
        self._screen = Screen()
        self._next = 0
        self._instance: str | None = None

    def look(self, client: Client) -> Screen:
        """Read the daemon's status and new events; return the screen."""
        from shisha_rt.cli.drive.reach import events_from

        status = client.status()
        expect_one_model(status, "top")
        if status["instance"] != self._instance:  # another daemon has taken its address
            self._instance, self._next, self._screen = status["instance"], 0, Screen()
        news = list(events_from(client, self._next))
        if news:
            self._next = news[-1]["event"] + 1
        self._screen.update(status, news)
        return self._screen


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Read keys at once and without echo; Ctrl-C still interrupts. Does nothing if standard input is no terminal."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Wait for `seconds`, or until `q` is pressed; True if it was."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    end_s = time.monotonic() + seconds
    while select.select([sys.stdin], [], [], max(0.0, end_s - time.monotonic()))[0]:
        if sys.stdin.read(1) in ("q", "Q", ""):
            return True
    return False
