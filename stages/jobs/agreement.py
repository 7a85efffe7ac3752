"""How far an engine's answers lie from ONNX Runtime's on the same frames."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from shisha_rt.costs.engine_trials import EngineTrial
from stages.engines.session import Array


def compared(trial: EngineTrial, computed: Mapping[str, Array], expected: Mapping[str, Array]) -> EngineTrial:
    """The trial with what one more frame tells. `expected`: ONNX Runtime's outputs, by name; shapes are the same."""
    for name, right in expected.items():
        if not right.size:
            continue
        if right.dtype.kind in "iub":
            trial = replace(trial, unlike=max(trial.unlike or 0.0, _unlike(computed[name], right)))
            continue
        a, b = computed[name].astype(np.float64), right.astype(np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
            return replace(trial, reason=f"output {name!r} is infinite, or no number, elsewhere than ONNX Runtime's")
        apart, largest = (float(np.abs(values).max(initial=0)) for values in (a[finite] - b[finite], b[finite]))
        trial = replace(trial, difference=max(trial.difference or 0.0, apart / largest if largest else apart))
    return trial


def _unlike(computed: Array, right: Array) -> float:
    if right.dtype.itemsize == 1 and right.dtype.kind != "b":
        return float((np.abs(computed.astype(np.int16) - right.astype(np.int16)) > 1).mean())
    return float((computed != right).mean())
