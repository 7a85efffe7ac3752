"""What counts as the same answer of a frame, alone and in a run of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from shisha_rt.tensors import Tensor
from stages.built.batched import BatchedStage, Go, Together, _check_alike
from stages.built_stage import FramesDiffer

ALONE = np.array([1.0, -4.0, np.inf], np.float32)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.1])
def test_a_run_that_makes_something_else_of_a_frame_is_refused(wrong: float) -> None:
    """Where the frame alone is infinite nothing is asked of the run."""
    spec = Tensor("y", (3,), "FP32")
    _check_alike(spec, np.array([1.0, -4.0, np.nan], np.float32), ALONE)
    with pytest.raises(FramesDiffer):
        _check_alike(spec, np.array([wrong, -4.0, np.inf], np.float32), ALONE)


class Refusing:
    """A network that cannot have several frames."""

    def go_on(self, arrays: Mapping[str, Any]) -> Go:
        raise RuntimeError("no memory")


class Single:
    frame_bytes, paced, described, difference = 8, False, False, 0.0

    def warm(self, _: object) -> tuple[float, ...]:
        return ()


def test_what_an_engine_cannot_have_together_is_computed_alone() -> None:
    spec = Tensor("x", (1, 3), "FP32"), Tensor("y", (1, 3), "FP32")
    together = Together(spec[:1], spec[1:], {"x": 0, "y": 0}, {4: Refusing()}, lambda given: {"y": given["x"]})
    stage: Any = BatchedStage(Single(), [together])  # type: ignore[arg-type]
    with pytest.raises(FramesDiffer, match="no memory"):
        stage.warm(lambda: 0.0)
