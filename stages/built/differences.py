"""How far apart two arrays are that should be equal."""

from __future__ import annotations

import numpy as np

from stages.engines.session import Array


def relative_difference(computed: Array, expected: Array) -> float:
    """Relative difference of an output from the expected one (see `PlacedStage.difference`)."""
    if not expected.size:
        return 0.0
    if expected.dtype.kind in "iu" and expected.dtype.itemsize == 1:  # quantised values
        return float(np.abs(computed.astype(np.int16) - expected.astype(np.int16)).max() / 255)
    if expected.dtype.kind != "f":
        return float((computed != expected).mean())
    return float(np.abs(computed - expected).max() / max(np.abs(expected).max(), np.finfo(np.float32).tiny))
