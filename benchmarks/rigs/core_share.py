"""Simulated hosts of less than a core: processes in a control group get no more CPU time than its share.

Unlike pacing, this holds for any process, other servers' workers, too. Names of groups contain the pid of their maker;
groups of processes that have ended are removed by the next maker.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

_OLD: Final = Path("/sys/fs/cgroup/cpu")  # a hierarchy for each controller
_NEW: Final = Path("/sys/fs/cgroup")  # one for all
_PERIOD_US: Final = 4_000  # the shortest for a share of a quarter, as the kernel grants at least a millisecond
_PREFIX: Final = "shisha-bench-"


def lacking_shares() -> str | None:
    """What this host lacks for `core_share`; None: nothing."""
    if os.geteuid():
        return "root: control groups are made"
    if (_OLD / "cpu.cfs_quota_us").exists():
        return None
    control = _NEW / "cgroup.subtree_control"
    return None if control.exists() and "cpu" in control.read_text().split() else f"{_NEW}: the controller `cpu`"


@contextlib.contextmanager
def core_share(cores: float, number: int) -> Iterator[Path]:
    """Context with a group; yields the file to which pids of processes are written that are to be in the group, with
    their future children.

    Needs what `lacking_shares` checks. `number`: distinguishes groups of one process.
    """
    root = _OLD if (_OLD / "cpu.cfs_quota_us").exists() else _NEW
    _sweep(root)
    group = root / f"{_PREFIX}{os.getpid()}-{number}"
    group.mkdir()
    quota_us = round(cores * _PERIOD_US)
    if root == _OLD:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    else:
        (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
    try:
        yield group / "cgroup.procs"
    finally:
        with contextlib.suppress(OSError):  # a process is left in it: the next maker removes it
            group.rmdir()


def _sweep(root: Path) -> None:
    for group in root.glob(f"{_PREFIX}*"):
        pid = int(group.name.removeprefix(_PREFIX).partition("-")[0])
        if not psutil.pid_exists(pid):
            with contextlib.suppress(OSError):
                group.rmdir()
