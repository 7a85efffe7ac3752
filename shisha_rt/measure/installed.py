"""Which engines are installed, found without loading any."""

from __future__ import annotations

import contextlib
import importlib.metadata
from importlib.util import find_spec

from shisha_rt.plan.engine import ENGINES, EngineName


def installed_engines() -> dict[EngineName, str]:
    """Versions by name, ONNX Runtime's first."""
    versions = {}
    for engine in ENGINES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if find_spec(engine) is not None:
                versions[engine] = importlib.metadata.version(engine)
    return versions
