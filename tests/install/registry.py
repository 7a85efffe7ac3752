"""What takes a package registry, and the wheel, which does: its build tool comes from there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PIP: Final = ("-m", "pip", "--disable-pip-version-check")
_UNREACHABLE: Final = ("NewConnectionError", "No matching distribution")


def why_unreachable(command: Sequence[str]) -> str:
    """Run a command; if it failed as no registry can be reached, that in words, else empty. Any other failure fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and any(word in done.stderr for word in _UNREACHABLE):
        return f"no package registry can be reached: {done.stderr.splitlines()[-1]}"
    assert done.returncode == 0, done.stderr
    return ""


def make_wheel(folder: Path) -> str:
    """Make the checkout's wheel in an empty folder; returns as `why_unreachable` does."""
    return why_unreachable(
        [sys.executable, *PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    )
