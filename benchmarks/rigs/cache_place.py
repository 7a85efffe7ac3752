"""A cache other than the user's, for measurements with an empty, full or damaged cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CACHE: Final = "XDG_CACHE_HOME"


@contextmanager
def cache_at(folder: Path) -> Iterator[None]:
    """Context in which this process and its children have their cache in `folder`."""
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = str(folder)
    try:
        yield
    finally:
        del os.environ[_CACHE]
        if before is not None:
            os.environ[_CACHE] = before
