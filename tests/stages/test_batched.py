"""What counts as the same answer of a frame, alone and in a run of several."""

from __future__ import annotations

import numpy as np
import pytest

from shisha_rt.tensors import TensorSpec
from stages.built.batched import _check_alike
from stages.built_stage import FramesDiffer

ALONE = np.array([1.0, -4.0, np.inf], np.float32)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.1])
def test_a_run_that_makes_something_else_of_a_frame_is_refused(wrong: float) -> None:
    """Where the frame alone is infinite nothing is asked of the run."""
    spec = TensorSpec("y", (3,), "FP32")
    _check_alike(spec, np.array([1.0, -4.0, np.nan], np.float32), ALONE)
    with pytest.raises(FramesDiffer):
        _check_alike(spec, np.array([wrong, -4.0, np.inf], np.float32), ALONE)
