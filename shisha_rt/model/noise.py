"""Made-up values of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shisha_rt.tensors import NUMPY_OF


def noise(shape: tuple[int, ...], datatype: str, generator: np.random.Generator) -> npt.NDArray[Any]:
    """Random values, as zeros might make an operator's work easier. Integers are 0, as they may be indices.

    8-bit integers are random too: they represent reals, and may have any value.
    """
    dtype = NUMPY_OF[datatype]
    if datatype in ("INT8", "UINT8"):
        return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return generator.standard_normal(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
