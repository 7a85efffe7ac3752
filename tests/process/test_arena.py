"""The shared memory, between real processes: one writes, another reads, pages come and go."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.daemon.sweep import passing_tensors
from shisha_rt.errors import Error, Failure
from shisha_rt.model.index import Crossing, ModelIndex
from shisha_rt.model.spans import Span
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.board import MAX_DEVICES, Sign
from shisha_rt.process.layout import SHAPE_BYTES, Layout, layouts_of
from shisha_rt.process.output_room import OUTPUT_BYTES
from shisha_rt.tensors import Tensor
from tests.wording import raised

_PAGE = 4096
INDEX = ModelIndex(
    engine="test",
    form="prepacked",
    layer_count=3,
    legal_cuts=(0, 1),
    node_layers=(0, 1, 2),
    inputs=(Tensor("x", (1, 3, 5), "FP32"),),
    outputs=(Tensor("y", (7,), "INT64"),),
    crossing=(
        Crossing(Tensor("a", (2000,), "FP32"), made=0, readers=(1,)),
        Crossing(Tensor("skip", (10,), "FP16"), made=0, readers=(1, 2)),
        Crossing(Tensor("y", (7,), "INT64"), made=1, readers=(2,)),
    ),
)
LAYOUTS = layouts_of([INDEX.tensors])
(LAYOUT,) = LAYOUTS


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(LAYOUTS, slot_count=3, place_count=2)
    yield arena
    arena.close()


def test_every_tensor_has_room_of_its_own() -> None:
    regions = sorted(LAYOUT.regions.values(), key=lambda region: region.offset_bytes)
    assert [region.tensor.name for region in regions] == ["x", "y", "a", "skip"]
    for before, after in itertools.pairwise(regions):
        assert before.offset_bytes + before.size_bytes <= after.offset_bytes
    assert all(region.offset_bytes % _PAGE == 0 for region in regions)
    assert LAYOUT.slot_bytes % _PAGE == 0


def test_slots_do_not_overlap(arena: Arena) -> None:
    for slot in range(3):
        for name in LAYOUT.regions:
            arena.raw(slot, LAYOUT.regions[name])[:] = slot + 1
    for slot in range(3):
        assert all((arena.raw(slot, region) == slot + 1).all() for region in LAYOUT.regions.values())


def test_a_view_has_the_tensors_shape_and_datatype(arena: Arena) -> None:
    view = arena.view(1, LAYOUT.regions["skip"])
    assert view.shape == (10,)
    assert view.dtype == np.float16
    view[...] = 2.5
    assert arena.view(1, LAYOUT.regions["skip"])[9] == 2.5


@pytest.mark.parametrize("slot", [-1, 3])
def test_a_slot_that_does_not_exist_is_refused(arena: Arena, slot: int) -> None:
    with pytest.raises(IndexError, match=f"slot {slot}"):
        arena.raw(slot, LAYOUT.regions["x"])


def test_another_process_sees_what_is_written(arena: Arena) -> None:
    arena.view(2, LAYOUT.regions["x"])[...] = 7
    program = (
        "import sys; from tests.process.test_arena import LAYOUT, LAYOUTS; from shisha_rt.process.arena import Arena\n"
        "arena = Arena(int(sys.argv[1]), LAYOUTS, 3, 2)\n"
        "arena.view(2, LAYOUT.regions['y'])[...] = arena.view(2, LAYOUT.regions['x']).sum()\n"
        "arena.beat(1, 123); arena.note_start(1, 0, 456)\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, str(arena.fd)], pass_fds=(arena.fd,), cwd=root, check=True)
    assert (arena.view(2, LAYOUT.regions["y"]) == 7 * 15).all()
    assert arena.sign(1) == Sign(heartbeat_ns=123, frame=0, started_ns=456)
    assert arena.sign(0) == Sign(0, None, 0)


def test_the_board_tells_frame_0_from_no_frame(arena: Arena) -> None:
    arena.note_start(0, 0, 1)
    assert arena.sign(0).frame == 0
    arena.note_end(0)
    assert arena.sign(0).frame is None
    arena.clear_sign(0, 99)
    assert arena.sign(0) == Sign(99, None, 0)


def test_a_place_keeps_its_speed_and_nothing_else_when_its_worker_is_replaced(arena: Arena) -> None:
    arena.set_speed(0, 0.63)
    arena.set_speed(1, 1 / 3)
    arena.note_start(0, 5, 10)
    arena.note_pacing(0, 20)
    assert arena.sign(0) == Sign(0, 5, 10, paced_until_ns=20)
    arena.clear_sign(0, 99)
    assert arena.sign(0) == Sign(99, None, 0)
    assert (arena.speed(0), arena.speed(1)) == (0.63, 1 / 3)


def test_devices_have_speeds_of_their_own_which_outlive_a_worker(arena: Arena) -> None:
    assert [arena.device_speed(1, device) for device in range(MAX_DEVICES)] == [1.0] * MAX_DEVICES
    arena.set_device_speed(0, 0, 0.25)
    arena.set_device_speed(1, MAX_DEVICES - 1, 0.5)
    arena.set_speed(1, 0.75)
    arena.note_start(1, 5, 10)
    arena.clear_sign(0, 99)
    arena.clear_sign(1, 99)
    attached = Arena(arena.fd, LAYOUTS, 3, 2)
    assert [attached.device_speed(0, device) for device in (0, 1, MAX_DEVICES - 1)] == [0.25, 1.0, 1.0]
    assert [attached.device_speed(1, device) for device in (0, 1, MAX_DEVICES - 1)] == [1.0, 1.0, 0.5]
    assert (attached.sign(0), attached.sign(1)) == (Sign(99, None, 0), Sign(99, None, 0))
    assert attached.speed(1) == 0.75


def test_a_device_beyond_the_board_is_refused(arena: Arena) -> None:
    with pytest.raises(IndexError):
        arena.set_device_speed(0, MAX_DEVICES, 0.5)


def test_the_end_of_a_frame_ends_its_wait(arena: Arena) -> None:
    arena.note_start(1, 0, 1)
    arena.note_pacing(1, 50)
    arena.note_end(1)
    assert arena.sign(1).paced_until_ns == 0


def test_memory_is_there_only_where_it_was_written_and_until_it_is_punched(arena: Arena) -> None:
    empty = _resident_bytes(arena)
    for slot in range(3):
        arena.view(slot, LAYOUT.regions["a"])[...] = 1
        arena.view(slot, LAYOUT.regions["skip"])[...] = 1
    assert _resident_bytes(arena) - empty == (6 + 1) * _PAGE, "a tensor's rooms lie side by side"
    for slot in range(3):
        arena.punch(slot, LAYOUT.regions["a"])
    assert _resident_bytes(arena) - empty == _PAGE
    assert not arena.view(0, LAYOUT.regions["a"]).any()
    assert (arena.view(0, LAYOUT.regions["skip"]) == 1).all()


def test_neighbouring_slots_are_one_tensor(arena: Arena) -> None:
    """Where no gap is between them: 8,000 bytes are a multiple of a cache line, 20 are none."""
    region = LAYOUT.regions["a"]
    for slot in range(3):
        arena.view(slot, region)[...] = slot
    many = arena.view_of_many(1, 2, region, axis=0)
    assert many.shape == (4000,)
    assert (many[:2000] == 1).all()
    assert (many[2000:] == 2).all()
    many[...] = 7
    assert (arena.view(0, region) == 0).all()
    assert (arena.view(2, region) == 7).all()
    assert region.is_gapless
    assert not LAYOUT.regions["skip"].is_gapless
    with pytest.raises(IndexError, match="slot 3 of 3"):
        arena.view_of_many(2, 2, region, axis=0)


def test_nobody_can_change_its_size(arena: Arena) -> None:
    for size in (0, 2 * arena.size_bytes):
        with pytest.raises(OSError, match=os.strerror(errno.EPERM)):
            os.ftruncate(arena.fd, size)


@pytest.mark.parametrize(
    ("works", "names"),
    [
        ([((0, 0),), ((1, 2),)], {"a", "skip"}),
        ([((0, 1),), ((2, 2),)], {"skip"}),
        ([((0, 0),), ((1, 1),), ((2, 2),)], {"a", "skip"}),
        ([((0, 2),)], set()),
        ([((0, 0), (2, 2)), ((1, 1),)], {"a", "skip"}),  # a stage of two runs: `skip` is read in the other one
    ],
)
def test_only_what_passes_between_stages_and_is_no_end_of_the_model(
    works: list[tuple[Span, ...]], names: set[str]
) -> None:
    plan = Plan(tuple(Stage(work, (("a",),), tuple(range(index))) for index, work in enumerate(works)))
    assert passing_tensors(INDEX, plan) == names


def test_what_each_layer_needs() -> None:
    assert list(map(set, INDEX.needs)) == [set(), {0}, {0, 1}]
    assert [entry.last_read for entry in INDEX.crossing] == [1, 2, 2]


def test_memory_that_a_limit_refuses_is_a_failure_and_leaves_no_file() -> None:
    open_before = set(Path("/proc/self/fd").iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (mmap.PAGESIZE, limits[1]))
    try:
        with raised(Failure, Error.FAILED, match=f"{os.strerror(errno.EFBIG)}; "):
            Arena.create(LAYOUTS, slot_count=64, place_count=64)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert set(Path("/proc/self/fd").iterdir()) == open_before


def _resident_bytes(arena: Arena) -> int:
    return os.fstat(arena.fd).st_blocks * 512


def test_a_layout_is_the_same_for_everyone() -> None:
    assert layouts_of([INDEX.tensors])[0] == LAYOUT == Layout(LAYOUT.slot_bytes, LAYOUT.regions, OUTPUT_BYTES)


OPEN = ModelIndex(
    engine="test",
    form="as_is",
    layer_count=1,
    legal_cuts=(),
    node_layers=(0,),
    inputs=(Tensor("x", (3,), "FP32"),),
    outputs=(
        Tensor("rows", (5, 2), "FP16", (0,)),
        Tensor("any", (4,), "INT8", (0,)),
        Tensor("y", (7,), "INT8"),
    ),
    crossing=(),
)


def test_what_depends_on_the_data_has_its_shape_beside_it() -> None:
    arena = Arena.create(layouts_of([OPEN.tensors], output_bytes=1024), slot_count=2, place_count=1)
    rows, other, y = (arena.layout.regions[name] for name in ("rows", "any", "y"))
    assert (rows.room_bytes, rows.size_bytes, y.room_bytes) == (1024, 1024 + SHAPE_BYTES, 7)
    assert (arena.shape(0, rows), arena.view(0, other).shape) == ((), ())  # nothing yet
    for slot, shape in enumerate([(256, 2), (0, 2)]):
        arena.set_shape(slot, rows, shape)
        arena.view(slot, rows)[...] = slot + 1
    arena.set_shape(0, other, (2, 1, 3))
    arena.view(0, other)[...] = 9
    assert (arena.view(0, rows) == 1).all()
    assert arena.view(1, rows).shape == (0, 2)
    assert arena.view(0, other).tolist() == [[[9, 9, 9]], [[9, 9, 9]]]
    arena.set_shape(0, other, ())
    assert arena.shape(0, other) == ()
    with pytest.raises(ValueError, match="'any' has 32 axes; expected at most 31"):
        arena.set_shape(0, other, (1,) * 32)
    arena.set_shape(0, rows, (257, 2))
    with pytest.raises(NoRoom, match="'rows': 1028 bytes"):
        arena.raw(0, rows)
    arena.close()
