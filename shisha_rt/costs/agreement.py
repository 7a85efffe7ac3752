"""How far one engine's answers are from another's, on the same inputs.

Rounding has to be distinguished from errors, but some networks magnify rounding: a detector that sees nothing answers
numbers near 0, of which ONNX Runtime itself has hardly a digit right. So ONNX Runtime also answers slightly `moved`
inputs: an answer that is no further off than these is right for inputs that nobody can tell apart. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shisha_rt.costs.engine_trials import MOST_APART

Array: TypeAlias = npt.NDArray[Any]


class Apart(NamedTuple):
    """`difference`: the largest of any output's reals, relative to that output's largest value. `unlike`: the largest
    share of any output's whole numbers that differ, without those that change with moved inputs; those of 8 bits stand
    for reals, and differ if they are more than a step apart. `over_rounding`: the largest ratio of an output's
    difference to what rounding explains, which is `MOST_APART`, or what moved inputs change if that is more. None if no
    such output has anything to compare: reals that are all infinite or nan say nothing of rounding.
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
    differences: list[float] = []
    unlikes: list[float] = []
    over_rounding: list[float] = []
    for name, expected in right.items():
        array, beside = computed[name], expected if near is None else near[name]
        if array.shape != expected.shape:
            raise ValueError(f"output {name!r} is {list(array.shape)}, expected {list(expected.shape)}")
        if not expected.size:
            continue
        if expected.dtype.kind != "f":
            unlikes.append(float((_others(array, expected) & ~_others(beside, expected)).mean()))
            continue
        finite = np.isfinite(expected)
        if not np.isfinite(array[finite]).all() or not np.array_equal(
            array[~finite], expected[~finite], equal_nan=True
        ):
            raise ValueError(f"output {name!r} is finite elsewhere than expected")
        if not finite.any():
            continue
        a, b, c = (values[finite].astype(np.float64) for values in (array, expected, beside))
        largest = _largest(b) or 1.0
        difference, moved = _largest(a - b) / largest, _largest(c - b) / largest
        differences.append(difference)
        over_rounding.append(difference / max(MOST_APART, moved))
    return Apart(*(max(each, default=None) for each in (differences, unlikes, over_rounding)))


def _largest(values: Array) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _others(array: Array, expected: Array) -> Array:
    """Which whole numbers differ."""
    if expected.dtype.kind != "b" and expected.dtype.itemsize == 1:
        return np.asarray(np.abs(array.astype(np.int16) - expected.astype(np.int16)) > 1)
    return np.asarray(array != expected)
