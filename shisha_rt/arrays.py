"""Array types, and a running sum. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def sums_before(terms: Floats) -> Floats:
    """(terms + 1,): the sum of the terms before each position."""
    return np.concatenate([[0.0], np.cumsum(terms)])
