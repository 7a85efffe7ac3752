"""What docs/plans.md says: its plans are plans, and its refusals are those of the gate, word for word."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from shisha_rt.plan.engine import STAGE_ENGINES
from shisha_rt.plan.form import WrittenStage, plan_of, written
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules

PAGE: Final = (Path(__file__).parent.parent.parent / "docs" / "plans.md").read_text(encoding="utf-8")
CORES: Final = ("core0", "core1")
NONE: Final = frozenset[int]()
CUT: Final = Plan.of([(0, 4, "core0"), (5, 9, "core1")])


def rules(layer_count: int, *, kinds: dict[str, int] | None = None, **others: object) -> PlanRules:
    places = CORES if kinds is None else tuple(kinds)
    return PlanRules(layer_count, places, kinds=kinds or {}, **others)  # type: ignore[arg-type]


def test_every_plan_that_it_writes_down_is_read_and_written_as_it_stands() -> None:
    plans = [json.loads(text) for text in re.findall(r"`(\[\{.*?\}\])`", PAGE)]
    assert len(plans) == 5
    for stages in plans:
        assert written(plan_of(stages)) == stages


def test_it_has_every_key_of_a_stage_and_every_engine() -> None:
    section = PAGE.partition("\n## Written down\n")[2].partition("\n## ")[0]
    assert [key for key in (*WrittenStage.__struct_fields__, *STAGE_ENGINES) if f"`{key}`" not in section] == []


def test_it_shows_a_plan_in_words() -> None:
    plan = Plan.chain([(0, 25, [["core0"], ["core1"]]), (26, 40, [["core2", "core3"]])])
    assert f"`{plan}`" in PAGE


def test_its_example_is_a_fork_and_its_chains_are_chains(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)\nwith Client", PAGE, re.DOTALL)
    names: dict[str, Plan] = {}
    exec(example, names)  # the page's own words
    assert [names[name].is_chain for name in ("copies", "chain", "fork")] == [True, True, False]
    joins = {0: NONE, 6: frozenset({2}), 9: frozenset({5}), 10: frozenset({8, 9})}
    needs = tuple(joins.get(layer, frozenset({layer - 1})) for layer in range(26))
    places = tuple(f"core{i}" for i in range(4))
    for name in ("copies", "chain", "fork"):
        assert PlanRules(26, places, needs=needs).problems(names[name]) == []


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        (rules(26), Plan.of([(0, 11, "core0")])),
        (rules(10), Plan.of([(0, 3, "core0"), (3, 9, "core1")])),
        (rules(10, legal_cuts=frozenset()), CUT),
        (rules(10), Plan((Stage(((0, 4),), (("core0",),), (1,)), CUT.stages[1]))),
        (
            rules(9, kinds={"a": 0, "b": 0, "c": 0}, needs=[{2} if layer == 6 else NONE for layer in range(9)]),
            Plan(
                (
                    Stage(((0, 2),), (("a",),)),
                    Stage(((3, 5),), (("b",),)),
                    Stage(((6, 8),), (("c",),), (1,)),
                )
            ),
        ),
        (rules(26), Plan.of([(0, 25, "core9")])),
        (rules(26, kinds={"fast0": 0, "slow0": 1}), Plan.chain([(0, 25, [["fast0", "slow0"]])])),
        (rules(26, single=frozenset({"core0"})), Plan.chain([(0, 25, [CORES])])),
        (rules(26, devices={"core0": ("cpu",), "core1": ("npu",)}), Plan.chain([(0, 25, [["core0"], ["core1"]])])),
        (rules(10), Plan.chain([(0, 4, [["core0"]]), (5, 9, [["core0"], ["core1"]])])),
        (
            rules(10, kinds={"core0": 0, "core1": 1}),
            Plan.chain([(0, 4, [["core0"], ["core1"]]), (5, 9, [["core0"], ["core1"]])]),
        ),
        (
            rules(1, weight_bytes=(9_000_000,), live_bytes=(437_184,), memory_bytes={"core0": 8_388_608}),
            Plan.of([(0, 0, "core0")]),
        ),
        (rules(10, engines=STAGE_ENGINES), Plan((replace(CUT.stages[0], engine="openvino"), CUT.stages[1]))),
        (rules(26, most_batch=4), Plan((replace(Plan.of([(0, 25, "core0")]).stages[0], batch=8),))),
    ],
)
def test_its_refusals_are_those_of_the_gate(given: PlanRules, plan: Plan) -> None:
    problems = given.problems(plan)
    assert problems
    page = PAGE.replace("`", "")
    assert [problem for problem in problems if problem.replace("`", "") not in page] == []
