"""A daemon at a socket of its own, with a connection to control it and a process that sends it frames."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Final

from benchmarks.rigs.child_process import ChildProcess, child_process
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client

_TIMEOUT_S: Final = 60.0


@contextlib.contextmanager
def served(model: str, *options: str) -> Iterator[tuple[Client, ChildProcess]]:
    """`model` and `options`: as `serve` takes them. The process takes the orders of `arrivals_process`."""
    with (
        tempfile.TemporaryDirectory(prefix="served-") as folder,
        child_daemon(model, *options, endpoint=f"ipc://{folder}/daemon") as daemon,
        Client(daemon.endpoint, timeout_s=_TIMEOUT_S) as control,
        child_process("benchmarks.rigs.arrivals_process", endpoint=daemon.endpoint) as (asked, _),
    ):
        yield control, asked
