"""The processor that this host says it has, in `/proc/cpuinfo`: its kind, and its instruction sets."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import Final

from shisha_rt.machine.host.kernel_files import text_of

_CPUINFO: Final = Path("/proc/cpuinfo")
_IDENTITY: Final = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)
_BFLOAT16: Final = frozenset({"avx512_bf16", "amx_bf16"})


def processor() -> str:
    """The processor's name, and a digest of everything that identifies its kind, instruction sets included."""
    identity = sorted(field for field in set(_fields()) if field[0] in _IDENTITY)
    name = next((value for key, value in identity if key == "model name"), platform.processor() or platform.machine())
    return f"{name} {hashlib.sha256(repr(identity).encode()).hexdigest()[:12]}"


def instruction_sets() -> frozenset[str]:
    """The first core's, as Linux names them; empty if the host does not say."""
    return frozenset(next((value for key, value in _fields() if key in ("flags", "Features")), "").split())


@cache
def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16: AVX-512 BF16 or AMX."""
    return not _BFLOAT16.isdisjoint(instruction_sets())


def _fields() -> list[tuple[str, str]]:
    """(name, value) of each line, those of all cores."""
    lines = (line.partition(":") for line in text_of(_CPUINFO).splitlines() if ":" in line)
    return [(name.strip(), value.strip()) for name, _, value in lines]
