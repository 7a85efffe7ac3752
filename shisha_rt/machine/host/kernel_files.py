"""Small files of `/proc` and `/sys`, in which the kernel reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CHUNK_BYTES: Final = 1 << 16


def text_of(path: Path) -> str:
    """The file's text; empty if it is missing, vanishes or may not be read. Unbuffered, as a loop reads many files."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        chunks = [os.read(fd, _CHUNK_BYTES)]
        while chunks[-1]:  # the kernel returns at most a page at a time
            chunks.append(os.read(fd, _CHUNK_BYTES))
    except OSError:  # the process has just ended
        return ""
    finally:
        os.close(fd)
    return b"".join(chunks).decode(errors="replace")


def number_in(path: Path) -> int | None:
    """The whole number that the file holds, and nothing else."""
    text = text_of(path).strip()
    return int(text) if text.isdigit() else None
