"""What a process runs, asked of processes that may end at any moment."""

from __future__ import annotations

import psutil


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing for one that has ended, waited for (gone) or not (a zombie)."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
