"""How far one engine's answers are from another's, on the same inputs.

Rounding has to be distinguished from errors, but some networks magnify rounding: a detector that sees nothing answers
numbers near 0, of which ONNX Runtime itself has hardly a digit right. So ONNX Runtime also answers inputs that are
*moved* by as little as rounding does: an engine that is no further off than that answer counts as right. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shisha_rt.costs.engine_trials import MOST_APART

Array: TypeAlias = npt.NDArray[Any]


class Apart(NamedTuple):
    """The worst of all outputs, None if there is none of that kind; reals that are infinite or nan do not count.

    `difference`: of reals, relative to the output's largest. `over_rounding`: `difference` over what rounding explains,
    which is `MOST_APART` or, if that is more, what moved inputs change. `unlike`: share of integers that differ,
    without those that moved inputs change; 8-bit ones stand for reals, and differ if they are more than a step apart.
    """

    difference: float | None = None
    unlike: float | None = None
    over_rounding: float | None = None


def how_far_apart(
    computed: Mapping[str, Array], right: Mapping[str, Array], near: Mapping[str, Array] | None = None
) -> Apart:
    """Compare outputs by name. `near`: the right outputs for moved inputs.

    Raises ValueError for an output of another shape, or with other infinities or nans.
    """
    apart = [
        _output_apart(name, computed[name], expected, expected if near is None else near[name])
        for name, expected in right.items()
    ]
    worst = (max((value for value in kind if value is not None), default=None) for kind in zip(*apart, strict=True))
    return Apart(*worst)


def _output_apart(name: str, computed: Array, right: Array, near: Array) -> Apart:
    if computed.shape != right.shape:
        raise ValueError(f"output {name!r} is {list(computed.shape)}, expected {list(right.shape)}")
    if not right.size:
        return Apart()
    if right.dtype.kind != "f":
        return Apart(unlike=float((_differ(computed, right) & ~_differ(near, right)).mean()))
    finite = np.isfinite(right)
    same_elsewhere = np.array_equal(computed[~finite], right[~finite], equal_nan=True)
    if not np.isfinite(computed[finite]).all() or not same_elsewhere:
        raise ValueError(f"output {name!r} is finite elsewhere than expected")
    if not finite.any():
        return Apart()
    reals, right_reals, near_reals = (values[finite].astype(np.float64) for values in (computed, right, near))
    largest = _largest(right_reals) or 1.0
    difference, moved = _largest(reals - right_reals) / largest, _largest(near_reals - right_reals) / largest
    return Apart(difference, over_rounding=difference / max(MOST_APART, moved))


def _largest(values: Array) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _differ(array: Array, expected: Array) -> Array:
    if expected.dtype.kind != "b" and expected.dtype.itemsize == 1:
        return np.asarray(np.abs(array.astype(np.int16) - expected.astype(np.int16)) > 1)
    return np.asarray(array != expected)
