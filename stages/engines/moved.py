"""Inputs that nobody can tell apart from others: what an engine answers to them is as right (see `costs.agreement`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from stages.engines.session import Array

_MOVED: Final = 2.0**-16
"""By how much, as a part of each real: about what rounding adds up to over the layers of a network."""
_MOVED_ULPS: Final = 2
"""At least, for reals of fewer bits."""


def moved(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs that are hardly others: reals have changed in their last bits, each by itself."""
    generator = np.random.default_rng(0)

    def of(values: Array) -> Array:
        if values.dtype.kind != "f":
            return values
        most = max(_MOVED, _MOVED_ULPS * float(np.finfo(values.dtype).eps))
        return (values * (1 + generator.uniform(-most, most, values.shape))).astype(values.dtype)

    return {name: of(values) for name, values in inputs.items()}
