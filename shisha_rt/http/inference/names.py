"""The one model's name and version, as paths and answers have them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import error_for

VERSION: Final = "1"
"""A daemon has one model, and one version of it."""


def check_path(path: Mapping[str, str], name: str) -> None:
    """Raises `NotFound` for another model or version."""
    if path["model"] != name:
        raise error_for(Error.UNKNOWN_MODEL, f"no model {path['model']!r} is served; expected {name!r}")
    if path.get("version", VERSION) != VERSION:
        raise error_for(Error.UNKNOWN_MODEL, f"model {name!r} has no version {path['version']!r}; expected {VERSION}")
