"""`python -m shisha_rt.repository.hosted`: the daemon of one model, started by a host process, which writes a
`HostedModel` to its standard input.

It prints a JSON line for each step of its start, and a last one: that it serves, with its metrics page, or why it
cannot. Until it serves it ends with the host process. From then on it outlives the host process: a later one finds its
record, and takes it over or ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.log_lines import log_lines
from shisha_rt.daemon.prepared import PATHS_AND_ARRAYS, Preparation
from shisha_rt.daemon.service_manager import ServiceManager
from shisha_rt.daemon.start import expect_daemon, start_daemon
from shisha_rt.errors import BadInput, Failure
from shisha_rt.machine.host.leases import CoreLeases, keep_folder
from shisha_rt.process.codec import Codec
from shisha_rt.process.parent import die_with, exit_at_signals, outlive_parent
from shisha_rt.process.stat import began_ticks

STARTS_CHILDREN: Final = True
"""A process of this module starts its own fork server: see `process/fork_server.py`."""


class DaemonRecord(msgspec.Struct, frozen=True, rename={"identity": "told"}):
    """A serving daemon's file beside its socket, for a later host process to find it by.

    `identity`: of what it serves (`entries.identity_of`), None if another daemon has taken over from it; `number`:
    unique in the folder of the host process's address; `began_ticks`: when the process began, as its id may be used
    again; 0: of an earlier version, which did not say.
    """

    identity: dict[str, Any] | None
    number: int
    pid: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]
    metrics: str
    began_ticks: int = 0


class StartOptions(NamedTuple):
    """How daemons are started: with a log of this level and format, and, if `fresh`, without earlier best plans."""

    log: tuple[int, str]
    fresh: bool


@dataclass(frozen=True)
class HostedModel:
    """Orders for a daemon. `asked`: on all places that it may ever have; it begins with those that are not spare.

    `leases`: folder of core leases, None without leases; `host_pid`: the host process's; `record`: path for the
    daemon's record, which holds `identity` and `number`.
    """

    asked: Preparation
    leases: Path | None
    host_pid: int
    record: Path
    identity: dict[str, Any]
    number: int


HOSTED_MODEL: Final[Codec[HostedModel]] = Codec(HostedModel, PATHS_AND_ARRAYS)


def main() -> int:
    os.setsid()  # a Ctrl-C in its terminal is for the host process
    hosted = HOSTED_MODEL.decode(sys.stdin.buffer.read())
    die_with(hosted.host_pid, signal.SIGTERM)
    log_lines(*hosted.asked.log)
    try:
        _serve(hosted)
    except (BadInput, Failure) as error:
        _say({"ready": False, "reason": " ".join(str(error).split())})
        return 1
    return 0


def _say(fields: Mapping[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the host process has just died; the next one finds the record
        print(json.dumps(fields), flush=True)


def _serve(hosted: HostedModel) -> None:
    with contextlib.ExitStack() as leaving, exit_at_signals(0):
        share = _share(hosted)  # before any child process is started, as children inherit the CPU affinity
        leaving.callback(share.close)
        expect_daemon()
        manager = ServiceManager({})
        daemon = start_daemon(hosted.asked, share, manager, lambda step: _say({"step": step}))
        leaving.pop_all()  # the daemon owns the share now

        def announce() -> None:
            pid = os.getpid()
            record = DaemonRecord(
                hosted.identity, hosted.number, pid, daemon.web.metrics_page, began_ticks=began_ticks(pid)
            )
            write_daemon_record(hosted.record, record)
            outlive_parent()
            keep_folder(hosted.record.parent)  # as long as this process lives
            _say(
                {"ready": True, "metrics": daemon.web.metrics_page}
            )  # without a host process the next finds the record

        daemon.run(announce)


def write_daemon_record(path: Path, record: DaemonRecord) -> None:
    """Write the record atomically."""
    begun = path.with_suffix(".begun")
    begun.write_bytes(msgspec.json.encode(record))
    begun.replace(path)


def _share(hosted: HostedModel) -> HostShare:
    """The daemon's share of the host. Also keeps its threads off the cores of places that it does not have yet."""
    machine, may = hosted.asked.machine, frozenset(os.sched_getaffinity(0))
    own = {core for place in machine.usual for core in place.cores}
    withheld = may & {core for place in machine.places for core in place.cores} - own
    if may - withheld:
        os.sched_setaffinity(0, may - withheld)
    share = HostShare(machine, CoreLeases(hosted.leases), is_dealt=True)
    share.withhold(withheld if may - withheld else frozenset())
    return share


if __name__ == "__main__":
    sys.exit(main())
