"""Hosts of less than a core: what runs in a control group of the kernel's gets no more CPU time than its share.

Unlike pacing, this holds for whatever runs there, another server's workers too. Groups carry the process id of who
made them; those of processes that are gone are removed by whoever makes the next.
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
_PERIOD_US: Final = 4_000  # as short as a share of a quarter may have: the kernel gives out no less than a millisecond
_PREFIX: Final = "shisha-bench-"


def lacking_shares() -> str | None:
    """What this host has not that `core_share` needs; None: it has all."""
    if os.geteuid():
        return "root: control groups are made"
    if (_OLD / "cpu.cfs_quota_us").exists():
        return None
    control = _NEW / "cgroup.subtree_control"
    return None if control.exists() and "cpu" in control.read_text().split() else f"{_NEW}: the controller `cpu`"


@contextlib.contextmanager
def core_share(cores: float, number: int) -> Iterator[Path]:
    """The file to which the numbers of processes are written that are to be in it, with their children to come.

    Needs what `lacking_shares` looks for. Groups of one process have a `number` each.
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
        with contextlib.suppress(OSError):  # something is left in it: the next one's sweep has it
            group.rmdir()


def _sweep(root: Path) -> None:
    for group in root.glob(f"{_PREFIX}*"):
        pid = int(group.name.removeprefix(_PREFIX).partition("-")[0])
        if not psutil.pid_exists(pid):
            with contextlib.suppress(OSError):
                group.rmdir()
