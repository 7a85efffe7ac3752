"""Which versions of ONNX the engine takes: asked of it, and only where a model is newer than what every engine takes.

The `onnx` package knows of versions long before an engine does, so that a model may be sound and still not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import onnx

from shisha_rt.errors import BadInput, Error
from shisha_rt.process.job import run_job

MICROSOFT: Final = "com.microsoft"
"""The domain of what ONNX Runtime adds to ONNX."""


class OnnxVersions(msgspec.Struct, frozen=True):
    """A model's, or the newest that `engine` takes. `opsets`: by domain; the empty one is ONNX's own."""

    ir_version: int
    opsets: dict[str, int]
    engine: str = ""


# Those of ONNX Runtime 1.20; older ones are not installed with this package.
_ALL_TAKE: Final = OnnxVersions(ir_version=10, opsets={"": 21, MICROSOFT: 1})


def newest_that_all_take() -> int:
    """The newest opset of ONNX that every version of the engine takes."""
    return _ALL_TAKE.opsets[""]


def check_versions(model: onnx.ModelProto, path: Path) -> None:
    """Raises BadInput, naming both versions, where the engine takes none as new as the model's."""
    onnx_versions = OnnxVersions(model.ir_version, {opset.domain: opset.version for opset in model.opset_import})
    if not any(_newer(onnx_versions, _ALL_TAKE)):
        return
    taken = _newest_taken()
    for what, version, newest in _newer(onnx_versions, taken):
        by = f"{taken.engine} takes (with onnx {onnx.__version__})"
        raise BadInput(
            f"{path}: {what} {version}; expected at most {newest}, the newest that {by}", Error.MODEL_UNSUPPORTED
        )


def _newer(onnx_versions: OnnxVersions, taken: OnnxVersions) -> Iterator[tuple[str, int, int]]:
    """What is newer than `taken`, its version, and the newest that is taken."""
    if onnx_versions.ir_version > taken.ir_version:
        yield "IR version", onnx_versions.ir_version, taken.ir_version
    for domain, version in onnx_versions.opsets.items():
        newest = taken.opsets.get(domain, version)  # other domains are refused for what they are
        if version > newest:
            yield f"opset version{f' of {domain}' if domain else ''}", version, newest


@cache
def _newest_taken() -> OnnxVersions:
    """Asked in a process of its own, as the control plane loads no engine."""
    said: list[bytes] = []
    run_job("stages.jobs.newest_versions", failed="the engine does not say what ONNX it takes", hear=said.append)
    return msgspec.json.decode(said[-1], type=OnnxVersions)
