"""Keep a child process from outliving its parent, however the parent ends, and from taking the parent's memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from shisha_rt.process.channel import BEAT_EVERY_S, Channel

NO_THREAD: Final = "can't start new thread"
"""The message of Python's RuntimeError where there is no thread to be had."""
MORE_PROCESSES: Final = "expected a limit that allows more processes and threads (ulimit -u, pids.max)"
CHILDREN_SCORE: Final = 250
"""The kernel adds it to a child's own score of at most 1000 where memory runs out; a parent has 0."""
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)  # loaded here, as a process just forked had better load nothing


def die_with(parent_pid: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process, by signal `number`, with the *thread* that started it.

    End it now if its parent has ended already.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:  # the parent died before the call above
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with`."""
    _libc.prctl(_PR_SET_PDEATHSIG, 0)


def die_before_others(score: int) -> None:
    """Have the kernel kill this process before others if memory runs out: it adds `score` to the process's own."""
    with contextlib.suppress(OSError, ValueError):  # some sandboxes have no such file
        if int(_OOM_SCORE.read_text()) < score:
            _OOM_SCORE.write_text(str(score))


def ignore_signals() -> None:
    """Ignore SIGINT, SIGTERM and SIGHUP: they may reach the whole group, and only the parent acts on them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def belong_to(parent_pid: int) -> None:
    """End with the parent, and otherwise only when the parent says so."""
    die_with(parent_pid)
    ignore_signals()


def line_to_parent(arguments: Sequence[str]) -> Channel:
    """The channel of a child started as `python -m MODULE CHANNEL PARENT`; the child then belongs to its parent."""
    channel_fd, parent_pid = map(int, arguments)
    belong_to(parent_pid)
    channel = Channel.inherited(channel_fd)
    show_life(channel)
    return channel


def serve_on_loop(serve: Callable[[Channel], Coroutine[Any, Any, None]]) -> None:
    """The program of a child that is started so, too, and serves on an event loop until its parent says otherwise."""
    import asyncio  # most children have none

    channel_fd, parent_pid = map(int, sys.argv[1:])
    die_with(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which still has something to give

    async def run() -> None:
        channel = Channel.of_loop(channel_fd)
        show_life(channel)
        await serve(channel)

    asyncio.run(run())


def show_life(channel: Channel) -> None:
    """Send heartbeats from now on, from a thread (`process.pulse`). Raises RuntimeError if none can be started."""

    def beat() -> None:
        while channel.beat():
            time.sleep(BEAT_EVERY_S)

    threading.Thread(target=beat, name="signs of life", daemon=True).start()


@contextlib.contextmanager
def exit_at_signals(status: int | None = None) -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that what has been begun is cleaned up: else files of weights stay.

    `status`: the exit status, which SIGINT then has, too; None: as a shell reports the signal. SIGINT and SIGHUP stay
    ignored if they are (a shell's background jobs, `nohup`).
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number if status is None else status)

    unless_ignored = [signal.SIGHUP] if status is None else [signal.SIGHUP, signal.SIGINT]
    heard = [signal.SIGTERM, *(number for number in unless_ignored if signal.getsignal(number) != signal.SIG_IGN)]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
