"""How to install an extra of this package, in the same way as the package was installed. Shell."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit


def is_installed(module: str) -> bool:
    """Whether a module of another package can be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that contains it is missing
        return False


def pip_install(extra: str) -> str:
    """Command that adds an extra: for a checkout or a wheel by its path, if that exists; else by the package's name."""
    package, editable = "shisha-rt", ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError):
        origin = json.loads(importlib.metadata.distribution(package).read_text("direct_url.json") or "{}")
        url = urlsplit(origin["url"])
        path = unquote(url.path)
        if url.scheme == "file" and Path(path).exists():
            package = path
            editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{shlex.quote(f'{package}[{extra}]')}"
