"""Each way in which a plan can be broken, and what the checker says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shisha_rt.model.split import Split, Splittable
from shisha_rt.plan import verify
from shisha_rt.plan.form import WrittenStage, read
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.plan.verify import MOST_FAULTS, PlanRules
from tests.wording import says

GOOD = Plan.of([(0, 1, "a"), (2, 2, "b"), (3, 5, "c")])
RULES = PlanRules(
    layer_count=6,
    places=("a", "b", "c", "d", "slow"),
    kinds={"a": 1, "b": 1, "c": 1, "d": 2, "slow": 3},
    single=frozenset({"slow"}),
)
CHANNELS = Splittable(2, 2, "channels", 2, 1, ())
BRANCHES = replace(
    RULES, needs=tuple(map(frozenset, ((), (0,), (0,), (2,), (1, 3), (4,))))  # 0 -> 1, 0 -> 2 -> 3, both -> 4 -> 5
)  # fmt: skip


def problems(plan: Plan, legal_cuts: set[int] | None = None) -> list[str]:
    return replace(RULES, legal_cuts=None if legal_cuts is None else frozenset(legal_cuts)).problems(plan)


def stage(*work: tuple[int, int], on: str, after: tuple[int, ...] = ()) -> Stage:
    """`on`: teams, as in "a+b, c"."""
    teams: tuple[Team, ...] = tuple(tuple(team.split("+")) for team in on.split(", "))
    return Stage(work, teams, after)


@pytest.mark.parametrize("legal_cuts", [None, {1, 2}, {0, 1, 2, 3, 4}])
def test_a_good_plan_has_none(legal_cuts: set[int] | None) -> None:
    assert problems(GOOD, legal_cuts) == []


@pytest.mark.parametrize(
    "plan",
    [
        Plan((stage((0, 5), on="a, b, c"),)),
        Plan((stage((0, 5), on="a+b, c"),)),
        Plan((stage((0, 5), on="a, slow"),)),  # unlike teams, of one stage
        Plan((stage((0, 2), on="a+b"), stage((3, 5), on="c, d", after=(0,)))),
        Plan((stage((0, 2), on="a, b"), stage((3, 5), on="b, a", after=(0,)))),  # a pool of two stages
    ],
)
def test_copies_teams_and_pools_may_be(plan: Plan) -> None:
    assert RULES.problems(plan) == []


def as_written(**fields: Any) -> WrittenStage:
    return msgspec.convert({"places": ["a"], "first": 0, "last": 5} | fields, WrittenStage)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([as_written(after=[])] * 1000, "the plan has 1000 stages, … 6, one for each …"),
        ([as_written(first=None, last=None, layers=[[2 * i, 2 * i] for i in range(5000)])],
         "stage 0 has 5000 runs of layers, … 6"),
        ([as_written(split={"first": 0, "last": 0, "axis": "rows", "shares": [1] * 1000})] * 25,
         "stage 0 has more … places: … 5"),
        ([as_written(places=["a"] * 4000)], "stage 0 is on 4000 places, … 5"),
        ([as_written(places=[["a"]] * 4000)], "stage 0 is on 4000 places, … 5"),
        ([as_written(places=[["a"] * 8000])], "stage 0 is on 8000 places, … 5"),
        ([as_written(after=[0] * 9000)], "stage 0 is after 9000 stages, …"),
    ],
)  # fmt: skip
def test_what_is_larger_than_model_and_machine_is_looked_at_no_further(
    stages: list[WrittenStage], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others waited for 0.4 s while all that was wrong with such a plan was found out."""
    assert RULES.too_large(stages) == says(expected)
    for look in ("_work", "_splits", "_order", "_teams", "_pools"):
        monkeypatch.setattr(verify, look, None)
    assert RULES.problems(read(stages)) == [says(expected)]


FORK = (stage((0, 0), on="a"), stage((1, 1), on="b", after=(0,)), stage((2, 3), on="c", after=(0,)))
JOINED = Plan((*FORK, stage((4, 5), on="a", after=(1, 2))))


def test_branches_may_be() -> None:
    assert BRANCHES.problems(JOINED) == []
    two_runs = Plan((stage((0, 0), (2, 3), on="a"), stage((1, 1), (4, 5), on="b", after=(0,))))
    assert BRANCHES.problems(two_runs) == []


def test_what_is_needed_may_come_from_an_ancestor() -> None:
    rules = replace(BRANCHES, needs=(*BRANCHES.needs[:5], frozenset({0, 4})))
    last = (stage((4, 4), on="a", after=(1, 2)), stage((5, 5), on="b", after=(3,)))
    assert rules.problems(Plan((*FORK, *last))) == []


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([(1, 5, "a")], "layer 0 is in no …"),
        ([(0, 1, "a"), (3, 5, "b")], "layer 2 is in no …"),
        ([(0, 2, "a"), (2, 5, "b")], "layer 2 is in stages 0, 1, expected one"),
        ([(0, 3, "a"), (2, 5, "b")], "layers 2-3 are in stages 0, 1, expected one"),
        ([(0, 3, "a")], "layers 4-5 are in no …"),
        ([(0, 6, "a")], "stage 0 (layers 0-6) ends at layer 6, the last … is 5"),
        ([(0, 2, "a"), (3, 2, "b"), (3, 5, "c")], "stage 1 (layers 3-2) is empty: empty stages are …"),
        ([(0, 2, "a"), (3, 5, "x")], "stage 1 (layers 3-5) is on 'x', … b, c, d, slow"),
    ],
)
def test_one_fault_is_the_first_one_found(stages: list[tuple[int, int, str]], expected: str) -> None:
    assert problems(Plan.of(stages))[0] == says(expected)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([stage((0, 5), on="a+d")], "stage 0 (layers 0-5) has the team a+d, …"),
        ([stage((0, 5), on="a, b, a")], "stage 0 (layers 0-5) is on 'a' …"),
        ([stage((0, 5), on="a+a")], "stage 0 (layers 0-5) is on 'a' …"),
        ([Stage(((0, 5),), ())], "stage 0 (layers 0-5) has no place, …"),
        ([Stage((), (("a",),)), stage((0, 5), on="b", after=(0,))],
         "stage 0 has no layers: empty stages are …"),
        ([stage((3, 5), (0, 2), on="a")],
         "stage 0 (layers 3-5, 0-2): …"),
        ([stage((0, 2), (3, 5), on="a")],
         "stage 0 (layers 0-2, 3-5): …"),
        ([stage((0, 5), on="a"), *[stage((0, 0), on="b", after=(0,))] * 6],
         "the plan has 7 stages, … 6, one for each …"),
        ([stage((0, 2), on="a", after=(1,)), stage((3, 5), on="b", after=(0,))],
         "stage 0 (layers 0-2) is after stage 1, … no circles"),
        ([stage((0, 2), on="a"), stage((3, 5), on="b", after=(1,))],
         "stage 1 (layers 3-5) is after stage 1, … no circles"),
        ([stage((0, 2), on="a"), stage((3, 5), on="b", after=(7,))],
         "stage 1 (layers 3-5) is after stage 7, which is not …"),
        ([stage((0, 2), on="a"), stage((3, 5), on="b", after=(0, 0))],
         "stage 1 (layers 3-5) is after a …"),
        ([stage((0, 2), on="a, b"), stage((3, 5), on="b, c", after=(0,))],
         "stage 0 (layers 0-2) and stage 1 (layers 3-5) share b, but not … teams: …"),
        ([stage((0, 2), on="a+b"), stage((3, 5), on="a", after=(0,))],
         "stage 0 (layers 0-2) and stage 1 (layers 3-5) share a, … teams: …"),
        ([stage((0, 2), on="a, d"), stage((3, 5), on="a, d", after=(0,))],
         "stage 0 (layers 0-2) and stage 1 (layers 3-5) share teams … alike: …"),
        ([stage((0, 2), on="a"), stage((3, 5), on="b")],
         "stage 1 (layers 3-5) needs what layer 2 makes, of stage 0 (layers 0-2), but is … it: … 0 in `after`"),
    ],
)  # fmt: skip
def test_one_fault_of_a_graph_is_the_only_one_found(stages: list[Stage], expected: str) -> None:
    assert RULES.problems(Plan(tuple(stages))) == [says(expected)]


def test_an_emulated_place_is_a_team_of_one() -> None:
    rules = replace(RULES, kinds={})
    assert rules.problems(Plan((stage((0, 5), on="a+slow"),))) == [
        says("stage 0 (layers 0-5) has 'slow' … emulated: …")
    ]


def test_a_join_that_lacks_a_branch() -> None:
    short = Plan((*FORK, stage((4, 5), on="a", after=(1,))))
    assert BRANCHES.problems(short) == [
        says("stage 3 (layers 4-5) needs what layer 3 makes, of stage 2 (layers 2-3), but is … it: … 2 in `after`")
    ]


def test_no_stages() -> None:
    assert problems(Plan(())) == [says("the plan has …")]


def test_an_illegal_cut_is_named_with_its_reason() -> None:
    assert problems(GOOD, {1}) == [
        says("cut 2, between layers 2 and 3, of stage 1 (layers 2-2) and stage 2 (layers 3-5), is not legal: …")
    ]


def test_every_fault_is_reported() -> None:
    lines = problems(Plan((stage((1, 2), on="a+d"), stage((3, 3), on="a"), stage((3, 4), on="x", after=(5,)))), {3})
    assert len(lines) == 7, lines


@pytest.mark.parametrize(
    "plan",
    [
        Plan((stage(*[(0, 399)] * 7500, on="p0"),)),
        Plan((Stage(((0, 399),), tuple((f"x{i}",) for i in range(8000))),)),
        Plan((Stage(((0, 399),), (("p0",),), tuple(range(1, 15000))),)),
        Plan(tuple(stage((0, 399), on=f"p{i % 64}") for i in range(400))),
    ],
)
def test_what_is_wrong_a_thousand_times_over_is_not_told_to_its_end(plan: Plan) -> None:
    """The gate stands in the daemon's loop, and each of these fits into one request."""
    faults = PlanRules(400, tuple(f"p{i}" for i in range(64))).problems(plan)
    assert 0 < len(faults) <= MOST_FAULTS
    assert max(map(len, faults)) < 1000


def test_a_pool_of_very_many_stages_and_copies() -> None:
    places = tuple(f"p{i}" for i in range(64))
    plan = Plan.chain((i, i, [[place] for place in places]) for i in range(400))
    assert PlanRules(400, places).problems(plan) == []
    unlike = PlanRules(400, places, kinds={place: place for place in places}).problems(plan)
    assert len(unlike) == MOST_FAULTS


MEMORY = replace(
    RULES, weight_bytes=(10, 20, 30, 40, 50, 60), live_bytes=(5, 6, 7, 8, 9, 1), memory_bytes={"a": 67, "c": 158}
)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (GOOD, "c would need 159 bytes, and has memory_bytes = 158"),
        (Plan((stage((0, 2), on="a"), stage((3, 5), on="b", after=(0,)))), None),
        (Plan((stage((0, 3), on="a, b"), stage((4, 5), on="d", after=(0,)))),
         "a would need 108 bytes, and has memory_bytes = 67"),
        (Plan((stage((0, 3), on="b+a"), stage((4, 5), on="d", after=(0,)))), None),  # counted at its lead
        (Plan((stage((0, 0), on="a, b"), stage((1, 1), on="b, a", after=(0,)), stage((2, 5), on="d", after=(1,)))),
         None),  # 30 and 6
        (Plan((stage((0, 1), on="a, b"), stage((2, 2), on="b, a", after=(0,)), stage((3, 5), on="d", after=(1,)))),
         None),  # 60 and 7
    ],
)  # fmt: skip
def test_a_place_has_room_for_all_of_its_stages(plan: Plan, expected: str | None) -> None:
    assert MEMORY.problems(plan) == ([] if expected is None else [expected])


OPERATORS = (2, 1, 1, 3, 1, 2)
DEVICES = {"a": ("cpu",), "b": ("cpu", "npu"), "c": ()}


def placed(*placements: tuple[str, ...]) -> Plan:
    """The good plan with a placement for each stage."""
    stages = zip(GOOD.stages, placements, strict=True)
    return Plan(tuple(replace(stage, placement=placement) for stage, placement in stages))


def misplaced(plan: Plan) -> list[str]:
    return PlanRules(6, (), operator_counts=OPERATORS, devices=DEVICES).placement_problems(plan)


def test_good_placements_have_none() -> None:
    assert misplaced(placed(("cpu",) * 3, ("npu",), ())) == []


@pytest.mark.parametrize(
    ("placements", "expected"),
    [
        ((("cpu",) * 2, ("npu",), ()), "stage 0 (layers 0-1) places 2 operators, expected 3"),
        ((("cpu",) * 4, ("npu",), ()), "stage 0 (layers 0-1) places 4 operators, expected 3"),
        ((("cpu",) * 3, (), ()), "stage 1 (layers 2-2) places 0 operators, expected 1"),
        ((("cpu", "npu", "cpu"), ("cpu",), ()), "stage 0 (layers 0-1) uses device 'npu', …"),
        ((("cpu",) * 3, ("gpu",), ()), "stage 1 (layers 2-2) uses device 'gpu', …"),
    ],
)
def test_a_misplaced_stage_is_named(placements: tuple[tuple[str, ...], ...], expected: str) -> None:
    assert misplaced(placed(*placements)) == [says(expected)]


def test_a_place_without_devices_has_no_placement() -> None:
    assert misplaced(placed(("cpu",) * 3, ("cpu",), ("cpu",) * 6)) == [
        "stage 2 (layers 3-5) places 6 operators, expected 0"
    ]


def test_every_misplacement_is_reported() -> None:
    assert len(misplaced(placed(("gpu", "tpu"), (), ()))) == 4


def test_a_place_of_another_host_is_alone_and_has_whole_layers() -> None:
    rules = replace(RULES, far=frozenset({"a", "b"}), splits={((2, 2), "channels"): CHANNELS})
    assert rules.problems(GOOD) == []
    assert rules.problems(Plan.chain([(0, 5, ["a", "b"])])) == []
    assert rules.problems(Plan.chain([(0, 5, [["a", "b"]])])) == [
        says("stage 0 (layers 0-5) has 'a' … host: …"),
        says("stage 0 (layers 0-5) has 'b' in a … host: …"),
    ]
    shards = [Split((2, 2), "channels", (1, 1), part) for part in (0, 1)]
    whole = [Stage(((0, 1),), (("c",),)), Stage(((3, 5),), (("c",),), (1, 2))]
    parts = [Stage(((2, 2),), ((on,),), (0,), split=shard) for shard, on in zip(shards, "bd", strict=True)]
    assert rules.problems(Plan((whole[0], *parts, whole[1]))) == [
        says("stage 1 (layers 2-2) has a … on 'b', which is … host: …")
    ]


ENGINES = replace(RULES, engines=("onnxruntime", "openvino"), engines_barred={"onnxruntime-spin": "it is too hot"})


def test_another_engine_has_the_whole_network() -> None:
    copies = stage((0, 5), on="a, b+c")
    assert ENGINES.problems(Plan((replace(copies, engine="openvino"),))) == []
    assert replace(ENGINES, most_batch=8).problems(Plan((replace(copies, engine="openvino", batch=8),))) == []
    halves = (stage((0, 2), on="a"), replace(stage((3, 5), on="b", after=(0,)), engine="openvino"))
    (fault,) = ENGINES.problems(Plan(halves))
    assert fault.startswith("stage 1 (layers 3-5) is to be")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [(RULES, "expected onnxruntime"), (ENGINES, "it is too …")],
)
def test_an_engine_that_may_not_serve_is_refused_with_the_reason(rules: PlanRules, expected: str) -> None:
    plan = Plan((replace(stage((0, 5), on="a"), engine="onnxruntime-spin"),))
    assert rules.problems(plan) == [says(f"stage 0 (layers 0-5) is to … by onnxruntime-spin: {expected}")]
