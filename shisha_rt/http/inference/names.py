"""The one model's name and version, as paths have them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shisha_rt.http.inference.answer import VERSION
from shisha_rt.wire.exceptions import NotFound


def check_path(path: Mapping[str, str], name: str) -> None:
    """Raises `NotFound` for another model or version."""
    if path["model"] != name:
        raise NotFound(f"no model {path['model']!r} is served; expected {name!r}")
    if path.get("version", VERSION) != VERSION:
        raise NotFound(f"{name!r} has no version {path['version']!r}; expected {VERSION}")
