"""The one model's name and version, as paths and answers have them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shisha_rt.protocol.exceptions import NotFound

VERSION: Final = "1"
"""A daemon has one model, and one version of it."""


def check_path(path: Mapping[str, str], name: str) -> None:
    """Raises `NotFound` for another model or version."""
    if path["model"] != name:
        raise NotFound(f"no model {path['model']!r} is served; expected {name!r}")
    if path.get("version", VERSION) != VERSION:
        raise NotFound(f"model {name!r} has no version {path['version']!r}; expected {VERSION}")
