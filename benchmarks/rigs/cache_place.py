"""A cache other than the user's, for measurements with an empty, full or damaged cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest.mock import patch


def cache_at(folder: Path) -> AbstractContextManager[object]:
    """Context in which this process and its children have their cache in `folder`."""
    return patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)})


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Context with a cache in a new folder, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder, cache_at(Path(folder)):
        yield
