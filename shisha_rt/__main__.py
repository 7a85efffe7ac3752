"""The `shisha-rt` command, and `python -m shisha_rt`. Ctrl-C at any moment ends it without a traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run one command and return its exit status. Before and after the command Ctrl-C ends the process at once."""
    _leave_ascii()
    handler = signal.getsignal(signal.SIGINT)
    is_heeded = handler is signal.default_int_handler  # a shell's background jobs ignore the signal
    if is_heeded:
        signal.signal(signal.SIGINT, _end)  # commands take half a second to import
    if os.getpid() == 1:  # of a container: the kernel keeps signals from it that have no handler
        signal.signal(signal.SIGTERM, _end)
    from shisha_rt.cli import app

    signal.signal(signal.SIGINT, handler)
    status = app.main()
    if is_heeded:
        signal.signal(signal.SIGINT, _end)
    return status


def _leave_ascii() -> None:
    """Restart Python in UTF-8 mode if the locale is ASCII: messages to children could not hold all paths otherwise."""
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONUTF8": "1"})


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
