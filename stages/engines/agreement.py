"""How far one engine's answers lie from another's, on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stages.engines.session import Array


class Apart(NamedTuple):
    """`difference`: of reals, the largest of any output, relative to that output's largest value. `unlike`: of whole
    numbers, the largest share of any output that is another; those of 8 bits stand for reals, and are others where they
    are more than a step apart. None where there are no such outputs.
    """

    difference: float | None = None
    unlike: float | None = None


def how_far_apart(computed: Mapping[str, Array], right: Mapping[str, Array]) -> Apart:
    """Compare outputs by name. Raises ValueError for one of another shape, or that is finite where the other is not, or
    infinite in another way.
    """
    difference: float | None = None
    unlike: float | None = None
    for name, expected in right.items():
        array = computed[name]
        if array.shape != expected.shape:
            raise ValueError(f"output {name!r} is {list(array.shape)}, expected {list(expected.shape)}")
        if not expected.size:
            continue
        if expected.dtype.kind != "f":
            unlike = max(unlike or 0.0, _unlike(array, expected))
            continue
        finite = np.isfinite(expected)
        if not np.isfinite(array[finite]).all() or not np.array_equal(
            array[~finite], expected[~finite], equal_nan=True
        ):
            raise ValueError(f"output {name!r} is finite elsewhere than expected")
        a, b = array[finite].astype(np.float64), expected[finite].astype(np.float64)
        apart, largest = (float(np.abs(values).max(initial=0)) for values in (a - b, b))
        difference = max(difference or 0.0, apart / largest if largest else apart)
    return Apart(difference, unlike)


def _unlike(array: Array, expected: Array) -> float:
    if expected.dtype.kind != "b" and expected.dtype.itemsize == 1:
        return float((np.abs(array.astype(np.int16) - expected.astype(np.int16)) > 1).mean())
    return float((array != expected).mean())
