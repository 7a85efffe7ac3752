"""Which versions of ONNX this ONNX Runtime accepts. The engine has no list of them, so models are loaded on trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from shisha_rt.model.reader.onnx_versions import LEARNED, MICROSOFT, OnnxVersions
from stages.engines.onnxruntime.options import base_options, open_session

# Versions that every ONNX Runtime accepts.
_IR_VERSION: Final = 8
_OPSET: Final = 17
_MOST_OF_OTHERS: Final = 20  # so far it has been 1 of com.microsoft, and up to 5 of ai.onnx.ml


def newest_taken() -> OnnxVersions:
    """Newest versions that the engine accepts, none newer than the `onnx` package knows."""

    def newest_opset(domain: str, most: int) -> int:
        return next(v for v in range(most, 0, -1) if _takes(_IR_VERSION, {"": _OPSET, domain: v}))

    return OnnxVersions(
        next(version for version in range(onnx.IR_VERSION, 0, -1) if _takes(version, {"": _OPSET})),
        {
            "": newest_opset("", onnx.defs.onnx_opset_version()),
            LEARNED: newest_opset(LEARNED, _MOST_OF_OTHERS),
            MICROSOFT: newest_opset(MICROSOFT, _MOST_OF_OTHERS),
        },
        f"ONNX Runtime {ort.__version__}",
    )


def _takes(ir_version: int, opsets: Mapping[str, int]) -> bool:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "nothing", [x], [y])
    imports = [helper.make_opsetid(*opset) for opset in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    try:
        open_session(model.SerializeToString(), base_options())
    except Exception:  # the engine's errors have no common class
        return False
    return True
