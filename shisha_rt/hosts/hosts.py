"""A host's description of itself, and whether it may have a place: only with equal versions it builds equal stages."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Final

import msgspec

from shisha_rt import __version__
from shisha_rt.machine.host.processor import processor
from shisha_rt.measure.compile import engine_key

_ENGINE: Final = "onnxruntime"


class HostAbout(msgspec.Struct, frozen=True):
    """`python`: major and minor version. `engine_key`: of `measure.compile`; another one may mean other forms."""

    version: str
    python: str
    engine_version: str
    engine_key: str
    processor: str


def about_this_host() -> HostAbout:
    return HostAbout(
        version=__version__,
        python=".".join(platform.python_version_tuple()[:2]),
        engine_version=importlib.metadata.version(_ENGINE),
        engine_key=engine_key(),
        processor=processor(),
    )


class _Version(msgspec.Struct, frozen=True):
    """What a host of any version says of itself."""

    version: str


def why_unfit(here: HostAbout, about: bytes) -> str | None:
    """Why another host may have no place, with both versions; None if it may.

    `about`: its `HostAbout` as JSON, which may have other fields if its version is another.
    """
    version = msgspec.json.decode(about, type=_Version).version
    if version != here.version:
        return f"it has shisha-rt {version}, and this host {here.version}: pip install shisha-rt=={here.version} there"
    there = msgspec.json.decode(about, type=HostAbout)
    if there.python != here.python:
        return f"it has Python {there.python}, and this host {here.python}: expected the same on all hosts"
    if there.engine_version != here.engine_version:
        what = f"it has ONNX Runtime {there.engine_version}, and this host {here.engine_version}"
        return f"{what}: pip install onnxruntime=={here.engine_version} there"
    return None
