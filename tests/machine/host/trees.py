"""What the kernel shows in /proc and /sys, written into a temporary folder."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}")
