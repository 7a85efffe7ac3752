"""What a reader must know of the code, the machine and the day to interpret a figure."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil

ROOT: Final = Path(__file__).parent.parent.parent
_PACKAGES: Final = ("shisha-rt", "onnxruntime", "pyzmq", "numpy", "msgspec")
_CODE: Final = ("shisha_rt", "stages", "benchmarks", ":!benchmarks/results")


def facts() -> dict[str, str]:
    """The header of every result: code, day, machine, versions, how busy the machine was, and how to repeat it."""
    load = ", ".join(f"{figure:.2f}" for figure in os.getloadavg())
    return {
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **host(),
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES),
        "load average at the start": load,
        "repeat": as_typed(sys.argv[1:]),
    }


def as_typed(words: Sequence[str]) -> str:
    """The command of this run. Paths of interpreters are left out, as they are of no use elsewhere."""
    named = ["PATH" if before.endswith("-python") else word for before, word in pairwise(["", *words])]
    return shlex.join(["python", "-m", "benchmarks", *named])


def commit() -> str:
    """The commit of the code that runs, such as `d92300f1a2b3`, with "and changes" if files differ from it."""
    revision = git("rev-parse", "--short=12", "HEAD")
    if revision is None:
        return "unknown"
    return f"{revision} and changes" if git("status", "--porcelain", "--", *_CODE) else revision


def commits_since(earlier: str) -> int | None:
    """How many commits have changed the code since `earlier`; None: that commit is not known here."""
    count = git("rev-list", "--count", f"{earlier}..HEAD", "--", *_CODE)
    return None if count is None else int(count)


def git(*arguments: str) -> str | None:
    """Output of git for this project; None without git, or if it fails."""
    try:
        ran = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def host() -> dict[str, str]:
    """A description of this machine; machines of the same make have the same one."""
    return {
        "cpu": _cpu_model(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
