"""The `shisha-rt` command, and `python -m shisha_rt`. Ctrl-C at any moment ends it without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run one command and return its exit status. Before and after the command a signal ends the process at once.

    To `serve` a signal is what ends it in good order, and its status is 0, at any moment.
    """
    _leave_ascii()
    is_service = sys.argv[1:2] == ["serve"]

    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(0 if is_service else 128 + number)

    handler = signal.getsignal(signal.SIGINT)
    is_heeded = handler is signal.default_int_handler  # a shell's background jobs ignore the signal
    if is_heeded:
        signal.signal(signal.SIGINT, end)  # commands take half a second to import
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The first process of a container gets no signal that has no handler.
        if (is_service or os.getpid() == 1) and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)
    from shisha_rt.cli import app

    signal.signal(signal.SIGINT, handler)
    status = app.main()
    if is_heeded:
        signal.signal(signal.SIGINT, end)
    return status


def _leave_ascii() -> None:
    """Restart Python in UTF-8 mode if the locale is ASCII: messages to children could not hold all paths otherwise."""
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONUTF8": "1"})


if __name__ == "__main__":
    sys.exit(main())
