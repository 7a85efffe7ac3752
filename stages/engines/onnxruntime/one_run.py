"""Run a model once, with the first input shapes with which it runs, and report shapes (see `model.reader.one_run`).

The inputs are made up, and the model is not optimised.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from shisha_rt.model.compared import compared_values
from shisha_rt.model.open_shapes import SeenTensor
from shisha_rt.model.reader.one_run import RunAsked, RunSeen
from shisha_rt.tensors import NAME_OF, NUMPY_OF, Tensor
from stages.engines.onnxruntime.options import as_built_options, open_session
from stages.noise import run_on_something

Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]

_PATIENCE_S: Final = 10.0
_ENGINES_NAME: Final = {"FP16": "float16", "FP32": "float", "FP64": "double"}


def run_once(asked: RunAsked) -> RunSeen:
    """The result of the first try that runs. If there are several, all are tried with noise before other values."""
    path = Path(asked.file)
    session = open_session(_with_outputs(path, asked.wanted), as_built_options(str(path.parent)))
    shown = [value.name for value in session.get_outputs()]
    reason, until_s = "", time.monotonic() + _PATIENCE_S
    # Shapes that cannot run fail with each kind of values: trying all kinds for them would take most of the time.
    rounds: list[tuple[int | None, Mapping[str, int]]] = [(1, {}), (None, {})] if len(asked.tries) > 1 else [(None, {})]
    compared = compared_values(onnx.load(path, load_external_data=False).graph)
    for most, whole in (*rounds, (None, compared)) if compared else rounds:
        for index, shapes in enumerate(asked.tries):
            if time.monotonic() > until_s:
                break
            try:
                run = partial(session.run, shown)
                results = run_on_something(run, _inputs(session, shapes, whole), first=1, most=most)
            except Exception as error:  # any error means that the model does not run with these shapes
                reason = str(error).strip().splitlines()[0][:300]
                continue
            results_by_name = {name: array for name, array in zip(shown, results, strict=True) if name in asked.wanted}
            return RunSeen(index, {name: _seen(array) for name, array in results_by_name.items()})
    return RunSeen(None, {}, reason)


def _with_outputs(path: Path, wanted: tuple[str, ...]) -> bytes:
    model = onnx.load(path, load_external_data=False)
    there = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in there)
    return bytes(model.SerializeToString())


def _inputs(session: ort.InferenceSession, shapes: Shapes, whole: Mapping[str, int]) -> list[Tensor]:
    names = {f"tensor({_ENGINES_NAME.get(name, name.lower())})": name for name in NUMPY_OF}
    return [
        Tensor(value.name, shape, names[value.type], made_up=whole.get(value.name, 0))
        for value, shape in zip(session.get_inputs(), shapes, strict=True)
    ]


def _seen(result: Array) -> SeenTensor:
    array = np.asarray(result)
    return SeenTensor(array.shape, NAME_OF.get(array.dtype, ""))
