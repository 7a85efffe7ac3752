"""What counts as the same answer of a frame, alone and in a run of several."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from shisha_rt.tensors import Tensor
from stages.built.batched import BatchedStage, FramesDiffer, Together, _check_alike, batched_stage
from stages.engines.session import Array, Bound, CpuClock, Ends, EngineSession
from tests.wording import says

ALONE = np.array([1.0, -4.0, np.inf], np.float32)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.1])
def test_a_run_that_makes_something_else_of_a_frame_is_refused(wrong: float) -> None:
    """Where the frame alone is infinite nothing is asked of the run."""
    spec = Tensor("y", (3,), "FP32")
    _check_alike(spec, np.array([1.0, -4.0, np.nan], np.float32), ALONE)
    with pytest.raises(FramesDiffer):
        _check_alike(spec, np.array([wrong, -4.0, np.inf], np.float32), ALONE)


class Refusing(EngineSession):
    """A network that cannot have several frames."""

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        raise RuntimeError("no memory")


class Alone(EngineSession):
    """A network that has one frame."""

    def answers(self, given: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": given["x"]}


class WrongFromFive(EngineSession):
    """A network that is right for four frames, and not for more."""

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        def compute(_: CpuClock) -> tuple[float, ...]:
            arrays["y"][...] = arrays["x"] * (1 if len(arrays["x"]) < 5 else 2)
            return ()

        return compute


@pytest.mark.parametrize(("most", "is_right"), [(4, True), (8, False)])
def test_the_largest_run_is_tried(most: int, *, is_right: bool) -> None:
    """OpenVINO (2026.4) is so with weights of four bits: another kernel computes five frames, wrongly."""
    ends = Ends((Tensor("x", (1, 3), "FP32"),), (Tensor("y", (1, 3), "FP32"),), {"x": 0, "y": 0})
    single, many = Alone(ends, 0), WrongFromFive(ends, 0)
    stage = batched_stage([single], lambda: [Together(single, ends.axes, dict.fromkeys(range(2, most + 1), many))])
    assert isinstance(stage, BatchedStage) == is_right


def test_what_an_engine_cannot_have_together_is_computed_alone() -> None:
    ends = Ends((Tensor("x", (1, 3), "FP32"),), (Tensor("y", (1, 3), "FP32"),), {"x": 0, "y": 0})
    single = Alone(ends, 0)
    stage = batched_stage([single], lambda: [Together(single, ends.axes, {4: Refusing(ends, 0)})])
    assert not isinstance(stage, BatchedStage)
    assert stage.alone == says("… no memory")
