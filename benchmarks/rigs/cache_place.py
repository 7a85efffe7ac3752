"""A cache other than the user's, for measurements with an empty, full or damaged cache."""

from __future__ import annotations

import os
import tempfile
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


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Context with a cache in a new folder, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder, cache_at(Path(folder)):
        yield
