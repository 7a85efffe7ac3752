"""Which engines are installed and can run on this host, found without loading any."""

from __future__ import annotations

import contextlib
import importlib.metadata

from shisha_rt.extras import is_installed
from shisha_rt.machine.host.processor import has_bfloat16
from shisha_rt.plan.engine import EngineName


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
