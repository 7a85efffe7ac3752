"""Run a small model once. The setup costs more than the run, so it is not for serving frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from stages.engines.onnxruntime.options import base_options, open_session


def evaluate(model: bytes | str, feeds: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Outputs of a serialised ONNX model, or of a file, in the model's order, on one CPU thread and not optimised."""
    options = base_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = open_session(model, options)
    return [np.asarray(value) for value in cast("list[Any]", session.run(None, dict(feeds)))]
