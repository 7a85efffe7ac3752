"""What a reader must know of the machine and the day to make sense of a figure."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

import psutil

_PACKAGES = ("shisha-rt", "onnxruntime", "pyzmq", "numpy", "msgspec")


def facts() -> dict[str, str]:
    """Machine, versions, date, and how busy the machine was with other things when the benchmark began."""
    load = ", ".join(f"{figure:.2f}" for figure in os.getloadavg())
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES),
        "load average at the start": load,
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
