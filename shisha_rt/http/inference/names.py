"""A model's name and version in paths. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.request import Signature


def check_path(path: Mapping[str, str], signature: Signature) -> None:
    """Raises `NotFound` if a path names a different model or version."""
    name, version = signature.model_name, signature.version
    if path["model"] != name:
        raise error_for(Error.UNKNOWN_MODEL, f"no model {path['model']!r} is served; expected {name!r}")
    if path.get("version", version) != version:
        raise error_for(Error.UNKNOWN_MODEL, f"model {name!r} has no version {path['version']!r}; expected {version}")
