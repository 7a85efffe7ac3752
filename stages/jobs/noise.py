"""Values to compute on where there are no real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shisha_rt.graph.datatypes import NUMPY_OF


def noise(shape: tuple[int, ...], datatype: str, generator: np.random.Generator) -> npt.NDArray[Any]:
    """What the values are must not make an operator's work easier, as zeros might; whole numbers may be indices."""
    dtype = NUMPY_OF[datatype]
    return generator.standard_normal(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
