"""Which ONNX versions the engine accepts. It is asked only about a model newer than what every engine version accepts.

The `onnx` package supports versions long before an engine does, so a valid model may still not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec
import onnx

from shisha_rt.errors import BadInput, Error
from shisha_rt.process.job import run_job

LEARNED: Final = "ai.onnx.ml"
"""The domain of trees, scalers and the like."""
MICROSOFT: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


class OnnxVersions(msgspec.Struct, frozen=True):
    """Versions of a model, or the newest that `engine` accepts. `opsets`: by domain; the empty one is ONNX's own."""

    ir_version: int
    opsets: dict[str, int]
    engine: str = ""


# What ONNX Runtime 1.20 accepts; older ones are not installed with this package.
_ALL_TAKE: Final = OnnxVersions(ir_version=10, opsets={"": 21, LEARNED: 3, MICROSOFT: 1})


def newest_that_all_take() -> int:
    """The newest opset of ONNX that every version of the engine accepts."""
    return _ALL_TAKE.opsets[""]


def check_versions(model: onnx.ModelProto) -> None:
    """Raise BadInput, naming both versions, if the model is newer than what the engine accepts."""
    onnx_versions = OnnxVersions(model.ir_version, {opset.domain: opset.version for opset in model.opset_import})
    if not any(_newer(onnx_versions, _ALL_TAKE)):
        return
    taken = _newest_taken()
    for what, version, newest in _newer(onnx_versions, taken):
        by = f"{taken.engine} takes (with onnx {onnx.__version__})"
        raise BadInput(f"{what} {version}; expected at most {newest}, the newest that {by}", Error.MODEL_UNSUPPORTED)


def _newer(onnx_versions: OnnxVersions, taken: OnnxVersions) -> Iterator[tuple[str, int, int]]:
    """Yield what is newer than in `taken`, its version, and the newest that is accepted."""
    if onnx_versions.ir_version > taken.ir_version:
        yield "IR version", onnx_versions.ir_version, taken.ir_version
    for domain, version in onnx_versions.opsets.items():
        newest = taken.opsets.get(domain, version)  # other domains are refused anyway
        if version > newest:
            yield f"opset version{f' of {domain}' if domain else ''}", version, newest


@cache
def _newest_taken() -> OnnxVersions:
    """Ask the engine, in a separate process, as the control plane loads no engine."""
    said = run_job("stages.jobs.newest_versions", failed="the engine does not say what ONNX it takes")
    return msgspec.json.decode(said, type=OnnxVersions)
