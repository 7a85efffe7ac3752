"""A daemon in a process of its own, which ends with the command that started it, however that ends."""

from __future__ import annotations

import contextlib
import ctypes
import json
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import IO, Final

from shisha_rt.errors import Failure

_START_S: Final = 120.0
_END_S: Final = 10.0
_ENDING_S: Final = 0.5  # between a lost connection and the end of the process that it was to
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class ChildDaemon:
    """Where it listens, once it is ready."""

    pid: int
    endpoint: str
    metrics: str


@contextlib.contextmanager
def child_daemon(*arguments: str) -> Iterator[ChildDaemon]:
    """`shisha-rt serve` with `arguments`, on free ports; stopped in an orderly way at the end of the block.

    Raises Failure, with the last line that it wrote, where it does not come up.
    """
    ports = ("--endpoint", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0")
    command = [sys.executable, "-m", "shisha_rt", "serve", *arguments, *ports]
    libc = ctypes.CDLL(None)

    def end_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # even if we are killed, and stop nothing ourselves

    with _ended_by_signals(), tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, preexec_fn=end_with_parent
        )
        try:
            line = _first_line(process)
            if not line:
                raise Failure(f"the daemon did not start: {_last_line(stderr)}")
            ready = json.loads(line)
            try:
                yield ChildDaemon(process.pid, ready["endpoint"], ready["metrics"])
            except Failure:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(_ENDING_S)
                    raise Failure(f"the daemon ended with status {status}: {_last_line(stderr)}") from None
                raise
        finally:
            _stop(process)


def _last_line(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    said = stderr.read().decode(errors="replace").strip().splitlines()
    return said[-1] if said else "it said nothing"


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    end_s = time.monotonic() + _START_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline() if selector.select(max(0.0, end_s - time.monotonic())) else b""


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()  # its workers end with it
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP, which would end this process on the spot, end it through its `finally` blocks instead."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
