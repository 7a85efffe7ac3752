"""The Python that runs all this: what a frame costs outside its engine depends on how it was built."""

from __future__ import annotations

import platform
import sysconfig


def built_with_profiles() -> bool:
    """Whether it was built with profile-guided optimisation, as by distributions; True where that is not known."""
    flags: str | None = sysconfig.get_config_var("PGO_PROF_USE_FLAG")
    return flags != ""


def interpreter_in_words() -> str:
    """Version and build."""
    return f"{platform.python_version()}, built {'with' if built_with_profiles() else 'without'} profiles"
