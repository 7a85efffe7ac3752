"""What tests ask of the processor that they run on.

The engines say it: under user-mode emulation /proc/cpuinfo is the host's.
"""

from __future__ import annotations

import platform
from functools import cache

import pytest

X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="of x86 processors")


@cache
def openvino_computes_bf16() -> bool:
    import openvino

    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
