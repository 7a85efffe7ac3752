"""Each way in which a plan can be broken, and what the checker says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import placement_problems, problems

GOOD = Plan.of([(0, 1, "a"), (2, 2, "b"), (3, 5, "c")])


def found(plan: Plan, legal_cuts: set[int] | None = None) -> list[str]:
    return problems(plan, layer_count=6, places=["a", "b", "c", "d"], legal_cuts=legal_cuts)


@pytest.mark.parametrize("legal_cuts", [None, {1, 2}, {0, 1, 2, 3, 4}])
def test_a_good_plan_has_none(legal_cuts: set[int] | None) -> None:
    assert found(GOOD, legal_cuts) == []


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([(1, 5, "a")], "stage 0 (layers 1-5) starts at layer 1, expected 0"),
        ([(0, 1, "a"), (3, 5, "b")], "stage 1 (layers 3-5) starts at layer 3, expected 2"),
        ([(0, 2, "a"), (2, 5, "b")], "stage 1 (layers 2-5) starts at layer 2, expected 3"),
        ([(0, 4, "a")], "the last stage ends at layer 4, expected 5"),
        ([(0, 6, "a")], "the last stage ends at layer 6, expected 5"),
        ([(0, 2, "a"), (3, 2, "b"), (3, 5, "c")], "stage 1 (layers 3-2) is empty: empty stages are not listed"),
        ([(0, 2, "a"), (3, 5, "a")], "stage 1 (layers 3-5) is on 'a', which another stage uses already"),
        ([(0, 2, "a"), (3, 5, "x")], "stage 1 (layers 3-5) is on 'x', expected one of a, b, c, d"),
    ],
)
def test_one_fault_is_the_only_one_found(stages: list[tuple[int, int, str]], expected: str) -> None:
    assert found(Plan.of(stages)) == [expected]


def test_stages_out_of_order() -> None:
    assert any("starts at layer 3, expected 0" in line for line in found(Plan.of([(3, 5, "a"), (0, 2, "b")])))


def test_no_stages() -> None:
    assert found(Plan(())) == ["the plan has no stages, expected at least one"]


@pytest.mark.parametrize(("names", "count"), [((), 0), (("a", "b"), 2)])
def test_exactly_one_place_for_each_stage(names: tuple[str, ...], count: int) -> None:
    assert found(Plan((Stage(0, 5, names),))) == [f"stage 0 (layers 0-5) has {count} places, expected exactly one"]


def test_an_illegal_cut_is_named_with_its_reason() -> None:
    assert found(GOOD, {1}) == [
        "cut 2, between layers 2 and 3, after stage 1 (layers 2-2), is not legal: the two layers cannot be separated"
    ]


def test_every_fault_is_reported() -> None:
    assert len(found(Plan.of([(1, 2, "a"), (3, 3, "a"), (4, 4, "x")]), {3})) == 5


OPERATORS = (2, 1, 1, 3, 1, 2)
DEVICES = {"a": ("cpu",), "b": ("cpu", "npu"), "c": ()}


def placed(*placements: tuple[str, ...]) -> Plan:
    """The good plan with a placement for each stage."""
    stages = zip(GOOD.stages, placements, strict=True)
    return Plan(tuple(replace(stage, placement=placement) for stage, placement in stages))


def misplaced(plan: Plan) -> list[str]:
    return placement_problems(plan, operator_counts=OPERATORS, devices=DEVICES)


def test_good_placements_have_none() -> None:
    assert misplaced(placed(("cpu",) * 3, ("npu",), ())) == []


@pytest.mark.parametrize(
    ("placements", "expected"),
    [
        ((("cpu",) * 2, ("npu",), ()), "stage 0 (layers 0-1) places 2 operators, expected 3"),
        ((("cpu",) * 4, ("npu",), ()), "stage 0 (layers 0-1) places 4 operators, expected 3"),
        ((("cpu",) * 3, (), ()), "stage 1 (layers 2-2) places 0 operators, expected 1"),
        ((("cpu", "npu", "cpu"), ("cpu",), ()), "stage 0 (layers 0-1) uses device 'npu', expected one of cpu"),
        ((("cpu",) * 3, ("gpu",), ()), "stage 1 (layers 2-2) uses device 'gpu', expected one of cpu, npu"),
    ],
)
def test_a_misplaced_stage_is_named(placements: tuple[tuple[str, ...], ...], expected: str) -> None:
    assert misplaced(placed(*placements)) == [expected]


def test_a_place_without_devices_has_no_placement() -> None:
    assert misplaced(placed(("cpu",) * 3, ("cpu",), ("cpu",) * 6)) == [
        "stage 2 (layers 3-5) places 6 operators, expected 0"
    ]


def test_every_misplacement_is_reported() -> None:
    assert len(misplaced(placed(("gpu", "tpu"), (), ()))) == 4
