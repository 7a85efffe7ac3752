"""The regions of a client: what lies where, and when its memory is used again."""

from __future__ import annotations

import fcntl
import gc
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shisha_rt.client import lent_memory, local_socket
from shisha_rt.client.lent_memory import LentMemory, _exporter_type
from shisha_rt.protocol.frame_tensors import Array
from tests.protocol.region_socket import INSTANCE, SEALS, RegionSocket, Say, grant, memory

WAIT_S = 10.0
SHAPE = (1, 3, 100, 100)
BYTES = 4 * 30_000


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[RegionSocket]:
    with RegionSocket(tmp_path) as running:
        yield running


@pytest.fixture
def lent() -> Iterator[LentMemory]:
    made = LentMemory()
    yield made
    made.forget()


def new(lent: LentMemory, shape: tuple[int, ...] = SHAPE, dtype: Any = np.float32) -> Array:
    """As a client does: with a further region if need be."""
    array = lent.empty(shape, dtype)
    if array is None:
        assert lent.wants
        lent.advance(WAIT_S)
        array = lent.empty(shape, dtype)
    assert array is not None
    return array


def place(lent: LentMemory, array: Array) -> tuple[str | None, int]:
    piece = lent.find(array)
    assert piece is not None
    assert piece.shared_memory_byte_size == array.nbytes
    return piece.shared_memory_region, piece.shared_memory_offset or 0


def test_arrays_and_their_views_are_found_where_they_are(regions: RegionSocket, lent: LentMemory) -> None:
    lent.meet(regions.path, INSTANCE)
    array = new(lent, (4, 100, 100))
    token, offset = place(lent, array)
    assert offset % 4096 == 0
    size = array[0].nbytes
    assert place(lent, array[1:3]) == (token, offset + size)
    assert place(lent, array[1:][1]) == (token, offset + 2 * size)
    assert place(lent, array.reshape(-1)[100:].reshape(3, -1)) == (token, offset + 400)
    assert place(lent, array.view(np.uint8)) == (token, offset)
    assert place(lent, np.frombuffer(array.data, np.int32)[10:]) == (token, offset + 40)
    assert lent.find(array[:, :50]) is None
    assert lent.find(array.transpose(2, 1, 0)) is None
    assert lent.find(array.copy()) is None
    assert lent.find(pickle.loads(pickle.dumps(array))) is None
    assert lent.find(np.zeros(3)) is None


@pytest.mark.parametrize("keep", [lambda a: a[0][0][3:], lambda a: a.T, lambda a: memoryview(a)[:], lambda a: [a[...]]])
def test_memory_is_used_again_when_the_last_view_has_gone(regions: RegionSocket, lent: LentMemory, keep: Any) -> None:
    lent.meet(regions.path, INSTANCE)
    first = new(lent)
    where = place(lent, first)
    kept = keep(first)
    del first
    others = [new(lent) for _ in range(3)]
    assert where not in [place(lent, array) for array in others]
    del others, kept
    gc.collect()
    assert where in [place(lent, array) for array in [new(lent) for _ in range(4)]]


def test_no_array_is_ever_within_another(regions: RegionSocket, lent: LentMemory) -> None:
    """Whatever is kept of what, in whatever order it is given up, of whatever size."""
    lent.meet(regions.path, INSTANCE)
    rng = random.Random(0)
    living: list[tuple[int, Array]] = []
    for number in range(2000):
        array = new(lent, (rng.choice([1, 3, 17, 40]), 1000 + rng.choice([0, 500])), rng.choice([np.float32, np.int64]))
        array[...] = number
        living.append((number, rng.choice([array, array[-1:], array[0], array.reshape(-1)])))
        del array
        while len(living) > rng.choice([3, 30]):
            value, kept = living.pop(rng.randrange(len(living)))
            assert (kept == value).all()
    assert all((kept == value).all() for value, kept in living)
    assert sum(regions.asked) < 100 * 2**20


def test_a_thousand_arrays_at_once_take_few_regions(regions: RegionSocket, lent: LentMemory) -> None:
    lent.meet(regions.path, INSTANCE)
    arrays = [new(lent) for _ in range(1000)]
    for number, array in enumerate(arrays):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(arrays))
    assert len(regions.asked) <= 12
    assert sum(regions.asked) < 3 * 1000 * BYTES


def test_arrays_may_be_collected_in_another_thread(regions: RegionSocket, lent: LentMemory) -> None:
    lent.meet(regions.path, INSTANCE)
    for _ in range(50):
        arrays = [new(lent) for _ in range(8)]
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        arrays_of_ours = [new(lent) for _ in range(8)]
        thread.join()
        assert len({place(lent, array) for array in arrays_of_ours}) == 8
        del arrays_of_ours
    assert sum(regions.asked) < 64 * BYTES


def test_arrays_outlive_the_regions_and_are_ordinary_then(regions: RegionSocket, lent: LentMemory) -> None:
    lent.meet(regions.path, INSTANCE)
    old = [new(lent) for _ in range(9)]
    for number, array in enumerate(old):
        array[...] = number
    lent.forget()
    assert not lent.shared
    assert lent.empty(SHAPE, np.float32) is None
    assert not lent.wants
    assert regions.ended == len(regions.asked)
    lent.meet(regions.path, INSTANCE)
    new_ones = [new(lent) for _ in range(9)]
    for array in new_ones:
        array[...] = -1
    assert all((array == number).all() for number, array in enumerate(old))
    assert [lent.find(array) for array in old] == [None] * 9
    places = {place(lent, array) for array in new_ones}
    del old, array
    assert not places & {place(lent, other) for other in [new(lent) for _ in range(9)]}


def refuse(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
    return {"error": {"code": "RESOURCE_EXHAUSTED", "message": "no more"}}, []


def refuse_much(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
    return grant(regions, size_bytes) if size_bytes <= 2 * BYTES else refuse(regions, size_bytes)


def test_a_daemon_that_has_no_room_is_asked_for_less_and_again_later(
    tmp_path: Path, lent: LentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RegionSocket(tmp_path, refuse_much) as regions:
        lent.meet(regions.path, INSTANCE)
        assert lent.empty(SHAPE, np.float32) is None
        while lent.wants:
            lent.advance(WAIT_S)
        assert lent.shared
        assert regions.asked == sorted(regions.asked, reverse=True)
    with RegionSocket(tmp_path / "..", refuse) as regions:
        lent.meet(regions.path, INSTANCE)
        assert lent.empty(SHAPE, np.float32) is None
        while lent.wants:
            lent.advance(WAIT_S)
        assert not lent.shared
        asked = len(regions.asked)
        lent.empty(SHAPE, np.float32)
        assert not lent.wants
        monkeypatch.setattr(lent, "_again_s", 0.0)
        assert lent.wants
        lent.advance(WAIT_S)
        assert len(regions.asked) == asked + 1


def test_who_wants_too_much_may_have_less(tmp_path: Path, lent: LentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array larger than memory was wanted for ever, and so no other; one beyond all numbers ended the sharing."""
    with RegionSocket(tmp_path, refuse_much) as regions:
        lent.meet(regions.path, INSTANCE)
        for shape in 3 * BYTES, 1 << 62, SHAPE:
            monkeypatch.setattr(lent, "_again_s", 0.0)
            assert lent.empty(shape, np.float32) is None
            while lent.wants:
                lent.advance(WAIT_S)
        assert lent.shared


def test_an_array_that_ctrl_c_left_half_made_goes_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    _exporter_type(4096).from_buffer(bytearray(4096))
    gc.collect()
    assert complaints == []


class _Peculiar(np.ndarray[Any, Any]):
    """An array with arithmetic of its own, as one with units."""

    def __array_function__(self, *_: object, **__: object) -> Any:
        raise AssertionError


def test_a_subclass_is_copied_as_the_array_that_it_is(regions: RegionSocket, lent: LentMemory) -> None:
    lent.meet(regions.path, INSTANCE)
    new(lent)
    assert lent.copy(np.zeros(SHAPE, np.float32).view(_Peculiar)) is not None


def fault(**changed: Any) -> Say:
    def say(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
        said, fds = grant(regions, size_bytes)
        return said | changed, fds

    return say


def bare(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
    said, _ = grant(regions, size_bytes)
    return said, []


def unsealed(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
    return grant(regions, size_bytes)[0], [memory(size_bytes, SEALS & ~fcntl.F_SEAL_SHRINK)]


def too_small(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
    return grant(regions, size_bytes)[0], [memory(size_bytes - 1)]


@pytest.mark.parametrize(
    "say",
    [
        fault(instance="second"),
        fault(token=5),
        fault(error={"code": "PERMISSION_DENIED", "message": ""}, size_bytes=0),
        bare,
        unsealed,
        too_small,
    ],
)
def test_whoever_gives_no_region_is_not_asked_again(tmp_path: Path, say: Say) -> None:
    lent = LentMemory()
    with RegionSocket(tmp_path, say) as regions:
        lent.meet(regions.path, INSTANCE)
        lent.want(BYTES)
        while lent.wants:
            lent.advance(WAIT_S)
        assert not lent.shared
        assert lent.empty(SHAPE, np.float32) is None
        assert not lent.wants
        assert len(regions.asked) == regions.ended == 1


def test_a_daemon_that_stood_still_is_asked_again(
    tmp_path: Path, lent: LentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had no answer within a second sent bytes from then on, as long as the connection was there."""
    monkeypatch.setattr(local_socket, "PATIENCE_S", 0.1)
    monkeypatch.setattr(lent_memory, "AGAIN_S", 0.0)
    awake = False

    def say(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]] | None:
        return grant(regions, size_bytes) if awake else None

    with RegionSocket(tmp_path, say) as regions:
        lent.meet(regions.path, INSTANCE)
        for awake in (False, True):
            lent.want(BYTES)
            while lent.wants:
                lent.advance(WAIT_S)
            assert lent.shared == awake


@pytest.mark.parametrize("path", ["/nowhere/at/all", "x" * 1000, "a\0b", ""])
def test_a_path_that_leads_nowhere_shares_nothing(lent: LentMemory, path: str) -> None:
    lent.meet(path, INSTANCE)
    lent.want(BYTES)
    while lent.wants:
        lent.advance(WAIT_S)
    assert not lent.shared


def test_nobody_waits_longer_than_asked_to(tmp_path: Path, lent: LentMemory) -> None:
    """A region that comes later than one had time to wait is still taken."""
    go = threading.Event()

    def late(regions: RegionSocket, size_bytes: int) -> tuple[dict[str, Any], list[int]]:
        assert go.wait(WAIT_S)
        return grant(regions, size_bytes)

    with RegionSocket(tmp_path, late) as regions:
        lent.meet(regions.path, INSTANCE)
        lent.want(BYTES)
        for _ in range(3):
            lent.advance()
            assert lent.wants
        go.set()
        while lent.wants:
            lent.advance(WAIT_S)
        assert lent.shared
        assert len(regions.asked) == 1
