"""The `shisha-rt` command, and `python -m shisha_rt`. Ctrl-C at any moment leaves nothing but an exit status."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_EXIT_INTERRUPTED = 130  # not Final: importing typing takes longer than all else until `main`


def main() -> int:
    """Run one command and return its exit status. Before and after the command Ctrl-C ends the process at once."""
    _leave_ascii()
    taken = signal.getsignal(signal.SIGINT)
    if taken is signal.default_int_handler:  # it is not ignored, as in the background
        signal.signal(signal.SIGINT, _end)  # commands take half a second to import
    from shisha_rt.cli import app

    signal.signal(signal.SIGINT, taken)
    status = app.main()
    if taken is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    return status


def _leave_ascii() -> None:
    """Begin again in UTF-8 where the locale has ASCII alone: no message to a child could hold a path with an umlaut."""
    if sys.getfilesystemencoding() == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONUTF8": "1"})


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(_EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
