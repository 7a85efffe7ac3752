"""Plans as they are written down, and read again."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shisha_rt.plan.engine import STAGE_ENGINES
from shisha_rt.plan.form import WrittenStage, plan_of, read, written
from shisha_rt.plan.plan import Plan, Stage, Team

CHAIN = Plan.of([(0, 11, "core0"), (12, 25, "core1")])
COPIES = Plan.chain([(0, 25, (("core0",), ("core1",)))])
TEAM = Plan.chain([(0, 25, (("core0", "core1"),))])
BRANCHES = Plan(
    (
        Stage(((0, 2),), (("a",),)),
        Stage(((3, 5), (9, 9)), (("b",),), (0,)),
        Stage(((6, 8),), (("c",), ("d", "e")), (0,)),
        Stage(((10, 11),), (("a",),), (1, 2)),
    )
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    names = st.text(min_size=1, max_size=3)
    teams: st.SearchStrategy[Team] = st.lists(names, min_size=1, max_size=3).map(tuple)
    stages = []
    for index in range(draw(st.integers(1, 5))):
        ends = draw(st.lists(st.integers(0, 99), min_size=2, max_size=6, unique=True).filter(lambda x: not len(x) % 2))
        pairs = sorted(ends)
        work = tuple(zip(pairs[::2], pairs[1::2], strict=True))
        after = tuple(draw(st.lists(st.integers(0, max(0, index - 1)), unique=True))) if index else ()
        engine = draw(st.sampled_from(STAGE_ENGINES))
        stages.append(Stage(work, tuple(draw(st.lists(teams, min_size=1, max_size=3))), after, engine=engine))
    return Plan(tuple(stages))


def reread(plan: Plan) -> Plan:
    return read(msgspec.json.decode(json.dumps(written(plan)), type=tuple[WrittenStage, ...]))


@given(plan=plans())
def test_what_is_written_is_read_as_it_was(plan: Plan) -> None:
    assert reread(plan) == plan
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


@pytest.mark.parametrize("plan", [CHAIN, COPIES, TEAM, BRANCHES])
def test_stages_with_what_they_took_are_read_as_the_plan(plan: Plan) -> None:
    assert plan_of(json.loads(json.dumps(written(plan, teams=[[]] * len(plan.stages))))) == plan


def test_a_chain_reads_as_it_always_did() -> None:
    assert written(CHAIN, service_s=[1.0, 2.0]) == [
        {"first": 0, "last": 11, "places": ["core0"], "service_s": 1.0},
        {"first": 12, "last": 25, "places": ["core1"], "service_s": 2.0},
    ]


def test_copies_teams_and_branches() -> None:
    assert written(COPIES) == [{"first": 0, "last": 25, "places": ["core0", "core1"]}]
    assert written(TEAM) == [{"first": 0, "last": 25, "places": [["core0", "core1"]]}]
    assert written(BRANCHES) == [
        {"first": 0, "last": 2, "places": ["a"]},
        {"layers": [[3, 5], [9, 9]], "places": ["b"]},
        {"first": 6, "last": 8, "places": [["c"], ["d", "e"]], "after": [0]},
        {"first": 10, "last": 11, "places": ["a"], "after": [1, 2]},
    ]


def test_teams_of_one_may_be_written_either_way() -> None:
    stage = msgspec.json.decode('{"first":0,"last":1,"places":["a",["b","c"],["d"]]}', type=WrittenStage)
    assert stage.teams == (("a",), ("b", "c"), ("d",))


@pytest.mark.parametrize(
    "text",
    [
        '{"places":["a"]}',
        '{"first":0,"places":["a"]}',
        '{"first":0,"last":1,"layers":[[0,1]],"places":["a"]}',
        '{"first":0,"last":1,"places":[]}',
        '{"first":0,"last":1,"places":[[]]}',
        '{"first":-1,"last":1,"places":["a"]}',
        '{"layers":[],"places":["a"]}',
        '{"layers":[[0]],"places":["a"]}',
        '{"first":0,"last":1,"places":["a"],"after":[-1]}',
    ],
)
def test_what_says_no_stage_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=WrittenStage)


def test_how_plans_are_said_in_a_line() -> None:
    assert str(CHAIN) == "core0: 0-11 | core1: 12-25"
    assert str(COPIES) == "core0, core1: 0-25"
    assert str(TEAM) == "core0+core1: 0-25"
    assert str(BRANCHES) == "a: 0-2 | b: 3-5,9-9 | c, d+e: 6-8 after 0 | a: 10-11 after 1,2"


def test_a_name_is_a_team_of_one() -> None:
    assert Plan.chain([(0, 9, ["core0", ["core1", "core2"]])]) == Plan.chain([(0, 9, [["core0"], ["core1", "core2"]])])


def test_only_another_engine_than_the_usual_one_is_written() -> None:
    stage = Stage(((0, 25),), (("core0",), ("core1",)), engine="openvino")
    assert written(Plan((stage,))) == [{"first": 0, "last": 25, "places": ["core0", "core1"], "engine": "openvino"}]
    assert str(stage) == "core0, core1: 0-25 openvino"
    assert "engine" not in written(COPIES)[0]
    with pytest.raises(msgspec.ValidationError, match="engine"):
        plan_of([{"first": 0, "last": 25, "places": ["core0"], "engine": "tvm"}])
