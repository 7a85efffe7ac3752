"""Which engines are installed and can run on this host, found without loading any."""

from __future__ import annotations

import contextlib
import importlib.metadata
from functools import cache
from pathlib import Path
from typing import Final

from shisha_rt.extras import is_installed
from shisha_rt.plan.engine import EngineName

_CPUINFO: Final = Path("/proc/cpuinfo")
_BFLOAT16: Final = frozenset({"avx512_bf16", "amx_bf16"})


def installed_engines(precision: str = "exact") -> dict[EngineName, str]:
    """Versions by name, ONNX Runtime's first. `precision` "any": also OpenVINO in bfloat16, if the processor has it."""
    versions: dict[EngineName, str] = {}
    packages: tuple[EngineName, ...] = ("onnxruntime", "openvino")
    for engine in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if is_installed(engine):
                versions[engine] = importlib.metadata.version(engine)
    if precision == "any" and "openvino" in versions and has_bfloat16():
        versions["openvino_bf16"] = versions["openvino"]
    return versions


@cache
def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16: AVX-512 BF16 or AMX."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not _BFLOAT16.isdisjoint(flags.split())
