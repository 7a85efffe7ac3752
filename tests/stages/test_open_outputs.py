"""Outputs whose shape depends on the data: each frame's own comes out of the slot, or word that it has no room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from shisha_rt.messages.calibration import CalibrationJob
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.layout import layouts_of
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import untimed
from stages.jobs.calibrate import calibrate
from stages.jobs.compile import try_out
from tests.stages.open_outputs import INDEX, SIZE, write_open_model

ROOM_BYTES = 1024  # of 64 positions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open")
    write_open_model(folder)
    return folder


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(layouts_of([INDEX.tensors], ROOM_BYTES), slot_count=2, place_count=1)
    yield arena
    arena.close()


def frame(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """With `count` values that are not 0, each of either sign."""
    rng = np.random.default_rng(seed)
    values = np.zeros((1, SIZE), np.float32)
    values[0, rng.choice(SIZE, count, replace=False)] = rng.choice([-1.0, 1.0], count)
    return values


def taken(arena: Arena, slot: int, name: str) -> npt.NDArray[np.generic]:
    return arena.view(slot, arena.layout.regions[name]).copy()


@pytest.mark.parametrize("works", [[((0, 1),)], [((0, 0),), ((1, 1),)]])
def test_each_frame_has_its_own_shapes(folder: Path, arena: Arena, works: list[tuple[tuple[int, int], ...]]) -> None:
    model = OptimisedModel(folder, INDEX)
    segments = [model.segment(work) for work in works]
    for segment in segments:
        segment.apart()(untimed)
    for number, count in enumerate((3, 0, 64, 17, 1, 64, 0)):
        slot, x = number % 2, frame(count, number)
        arena.view(slot, arena.layout.regions["x"])[...] = x
        for segment in segments:
            segment.on_slot(arena, slot)(untimed)
        where = np.array(np.nonzero(x))
        np.testing.assert_array_equal(taken(arena, slot, "plain"), x)
        np.testing.assert_array_equal(taken(arena, slot, "where"), where)
        np.testing.assert_array_equal(taken(arena, slot, "positive"), x[tuple(where)] > 0)
        assert taken(arena, slot, "where").dtype == np.int64


def test_one_that_is_too_large_costs_nobody_else(folder: Path, arena: Arena) -> None:
    segment = OptimisedModel(folder, INDEX).segment(((0, 1),))
    before = frame(64)
    arena.view(1, arena.layout.regions["x"])[...] = before
    segment.on_slot(arena, 1)(untimed)
    arena.view(0, arena.layout.regions["x"])[...] = frame(65)
    run = segment.on_slot(arena, 0)
    run(untimed)
    assert arena.shape(0, arena.layout.regions["where"]) == (2, 65)
    with pytest.raises(
        NoRoom, match=r"'where': 1040 bytes \(shape \[2, 65\]\); expected at most 1024.*max-output-bytes"
    ):
        taken(arena, 0, "where")
    assert taken(arena, 0, "positive").shape == (65,)
    np.testing.assert_array_equal(taken(arena, 1, "where"), np.array(np.nonzero(before)))
    arena.view(0, arena.layout.regions["x"])[...] = frame(2)
    run(untimed)
    assert taken(arena, 0, "where").shape == (2, 2)


def test_it_is_tried_out_and_calibrated_as_any(folder: Path) -> None:
    try_out(folder)
    job = CalibrationJob(
        budget_s=1e-3,
        min_rounds=1,
        max_rounds=1,
        engine_folder=str(folder),
        cores=(0,),
        threads=1,
        spans=((0, 0), (0, 1)),
    )
    calibrated = calibrate(job, lambda _: None)
    assert all(time.wall_s > 0 for time in calibrated.times)
