"""Whether an extra of this package is there, and how to install it. Shell."""

from __future__ import annotations

from importlib.util import find_spec


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that contains it is missing
        return False


def pip_install(extra: str) -> str:
    """Command that adds an extra, however the package was installed: pip keeps what has the name, and adds the rest.

    The path of a wheel or checkout would do as well only as long as that exists.
    """
    return f"pip install 'shisha-rt[{extra}]'"
