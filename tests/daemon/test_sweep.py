"""Room that ended plans leave behind is given back in pieces, all of it, and never what another plan needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from shisha_rt.daemon.sweep import PIECE_BYTES, Sweep, passing_tensors
from shisha_rt.model.index import Crossing, ModelIndex
from shisha_rt.plan.plan import Plan
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import Tensor

LAYERS: Final = 12
SLOTS: Final = 20
ELEMENTS: Final = PIECE_BYTES // 16  # a quarter of a piece
END: Final = Tensor("x", (1,), "FP32")
INDEX: Final = ModelIndex(
    engine="test",
    form="prepacked",
    layer_count=LAYERS,
    legal_cuts=tuple(range(LAYERS - 1)),
    node_layers=tuple(range(LAYERS)),
    inputs=(END,),
    outputs=(Tensor("y", (1,), "FP32"),),
    crossing=tuple(
        Crossing(Tensor(f"t{layer}", (ELEMENTS,), "FP32"), made=layer, readers=(layer + 1,))
        for layer in range(LAYERS - 1)
    ),
)
HALVES: Final = Plan.of([(0, 5, "a"), (6, LAYERS - 1, "b")])
WHOLE: Final = Plan.of([(0, LAYERS - 1, "a")])
EACH: Final = Plan.of((layer, layer, f"p{layer}") for layer in range(LAYERS))


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(layouts_of([INDEX.tensors]), SLOTS, place_count=1)
    for slot in range(SLOTS):
        for region in arena.layout.regions.values():
            arena.raw(slot, region)[::4096] = 1
    yield arena
    arena.close()


def written(arena: Arena, name: str) -> list[bool]:
    """By slot: whether it still has what was written."""
    return [bool(arena.raw(slot, arena.layout.regions[name])[0]) for slot in range(SLOTS)]


def resident_bytes(arena: Arena) -> int:
    return os.fstat(arena.fd).st_blocks * 512


def test_all_of_it_goes_a_piece_at_a_time(arena: Arena) -> None:
    sweep = Sweep(arena, [INDEX])
    assert not sweep.some()
    before = resident_bytes(arena)
    sweep.want(sweep.passing(EACH))
    calls, more = 0, True
    while more:
        more = sweep.some()
        calls += 1
        after = resident_bytes(arena)
        assert 0 < before - after <= 2 * PIECE_BYTES
        before = after
    assert calls == (LAYERS - 1) * SLOTS // 4
    assert not any(any(written(arena, f"t{layer}")) for layer in range(LAYERS - 1))
    assert all(written(arena, "x"))
    assert all(written(arena, "y"))


def test_what_a_new_plan_needs_is_left_as_it_is_from_then_on(arena: Arena) -> None:
    sweep = Sweep(arena, [INDEX])
    sweep.want(sweep.passing(EACH))
    sweep.keep(HALVES)
    while sweep.some():
        pass
    assert all(written(arena, "t5"))
    assert not any(written(arena, "t4"))
    sweep.want(sweep.passing(HALVES))
    sweep.some()
    sweep.keep(HALVES)
    gone = written(arena, "t5")
    assert not sweep.some()
    assert written(arena, "t5") == gone
    assert sweep.passing(WHOLE) == set()


def test_tensors_of_one_shape_go_without_those_of_another() -> None:
    layouts = layouts_of([INDEX.tensors, INDEX.tensors])
    two = Arena.create(layouts, SLOTS, place_count=1)
    regions = [layout.regions["t3"] for layout in layouts]
    for slot in range(SLOTS):
        for region in regions:
            two.raw(slot, region)[:] = 1
    sweep = Sweep(two, [INDEX, INDEX])
    sweep.want([(1, "t3")])
    while sweep.some():
        pass
    assert [bool(two.raw(slot, region)[0]) for slot in range(SLOTS) for region in regions] == [True, False] * SLOTS
    assert all(two.raw(slot, regions[0]).all() for slot in range(SLOTS))
    assert sweep.passing(HALVES) == {(layout, name) for layout in (0, 1) for name in passing_tensors(INDEX, HALVES)}
    two.close()
