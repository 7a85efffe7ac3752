"""`python -m stages.jobs.second_engine MODEL_FOLDER`: run a cleaned model in OpenVINO and in ONNX Runtime, and compare.

Both on the same made-up values. If OpenVINO dies of the model, this process does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import onnx

from shisha_rt.messages.agreement import Agreement
from shisha_rt.model.compared import compared_values
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE, read_clean
from stages.engines.evaluate import evaluate
from stages.engines.openvino.session import openvino_answers
from stages.engines.session import Array
from stages.jobs.noise import run_on_something

_MOST_SAID: Final = 200


def main(arguments: list[str]) -> int:
    sys.stdout.buffer.write(msgspec.json.encode(compare_engines(Path(arguments[0]))) + b"\n")
    return 0


def compare_engines(model_folder: Path) -> Agreement:
    file, graph = model_folder / CLEAN_FILE, read_clean(model_folder)
    inputs = [(tensor.name, tensor.shape, tensor.datatype) for tensor in graph.inputs]

    def answered(whole: Mapping[str, int]) -> tuple[dict[str, Array], list[Array]]:
        return run_on_something(lambda feeds: (feeds, evaluate(str(file), feeds)), inputs, first=1, whole=whole)

    try:
        feeds, right = answered({})
    except Exception:  # of ONNX Runtime, which runs it with these then
        feeds, right = answered(compared_values(onnx.load(str(file), load_external_data=False).graph))
    try:
        arrays = openvino_answers(file, list(feeds.values()))
    except Exception as error:  # whatever it raises says that it does not run the model
        return Agreement(runs=False, reason=_in_a_line(error))
    return agreement([tensor.name for tensor in graph.outputs], arrays, right)


def agreement(names: Sequence[str], arrays: Sequence[Array], right: Sequence[Array]) -> Agreement:
    """How far the outputs lie from those that are `right`."""
    difference = 0.0
    for name, result, expected in zip(names, arrays, right, strict=True):
        if result.shape != expected.shape:
            return Agreement(
                runs=True, reason=f"output {name!r} is {list(result.shape)} there, {list(expected.shape)} here"
            )
        if not expected.size:
            continue
        a, b = result.astype(np.float64), expected.astype(np.float64)
        if not (np.isfinite(a) == np.isfinite(b)).all():
            return Agreement(runs=True, reason=f"output {name!r} is finite elsewhere than here")
        apart, largest = (float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in (a - b, b))
        difference = max(difference, apart / largest if largest else apart)
    assert math.isfinite(difference)
    return Agreement(runs=True, difference=difference)


def _in_a_line(error: Exception) -> str:
    """Without the places in OpenVINO's sources that what it says begins with."""
    lines = [line.strip() for line in str(error).splitlines()]
    message = " ".join(line for line in lines if line and not line.startswith(("Exception from", "Check '")))
    return (message or repr(error))[:_MOST_SAID]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
