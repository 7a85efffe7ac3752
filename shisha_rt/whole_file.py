"""Files that a user asked for: written whole, or not at all. Shell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Context with a file to write, which at the end gets the name `path`, and the mode of what was there.

    If anything is raised, Ctrl-C too, what was at `path` stays, and nothing is left beside it. What is no regular file,
    as /dev/stdout, or lies in a folder where no file can be made, is written itself. An OSError names `path`.
    """
    target = Path(os.path.realpath(path))
    there = path.exists()
    in_place = there and not (path.is_file() and os.access(target.parent, os.W_OK) and not _is_descriptor(path))
    begun = path if in_place else target.with_name(f".shisha-rt-{os.getpid()}")
    try:
        yield begun
        if not in_place:
            if there:
                begun.chmod(target.stat().st_mode & 0o777)
            begun.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        if not in_place:
            begun.unlink(missing_ok=True)


def _is_descriptor(path: Path) -> bool:
    """Whether it is one of a process, as /dev/stdout: what is written elsewhere to that file would be lost."""
    folder = path.parent.resolve()
    return folder == Path("/dev") or folder.is_relative_to("/proc")
