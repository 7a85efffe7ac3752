"""Slightly perturbed inputs: an engine's answers to them are as right as to the originals (see `costs.agreement`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from stages.engines.session import Array

_MOVED: Final = 2.0**-16
"""Largest relative change of each float: about what rounding adds up to over the layers of a network."""
_MOVED_ULPS: Final = 2
"""The change is at least so many ulps, which counts for floats of fewer bits."""


def moved(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with the last bits of each float changed, independently."""
    generator = np.random.default_rng(0)

    def of(values: Array) -> Array:
        if values.dtype.kind != "f":
            return values
        most = max(_MOVED, _MOVED_ULPS * float(np.finfo(values.dtype).eps))
        return (values * (1 + generator.uniform(-most, most, values.shape))).astype(values.dtype)

    return {name: of(values) for name, values in inputs.items()}
