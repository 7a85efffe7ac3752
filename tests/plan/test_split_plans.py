"""Plans with layers in shards: how they are written down, and what `verify` makes of them."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from shisha_rt.model.split import Axis, KeptWhole, Split, Splittable
from shisha_rt.plan.form import plan_of, written
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules

SPLITS = [
    Splittable(2, 2, "channels", 64, 16, ("c",)),
    Splittable(2, 2, "inputs", 32, 1, ("c",), summed=True),
    Splittable(4, 4, "columns", 10, 1, ("d",), joined=True),
    Splittable(1, 2, "rows", 20, 1, ("c",)),
]
KEPT = KeptWhole(3, 3, "channels", "Softmax needs all channels")
RULES = PlanRules(
    6,
    ("a", "b", "c"),
    weight_bytes=(100, 100, 640, 100, 1000, 100),
    live_bytes=(10,) * 6,
    splits={((splittable.first, splittable.last), splittable.axis): splittable for splittable in SPLITS},
    kept_whole={((KEPT.first, KEPT.last), KEPT.axis): KEPT.reason},
)


def shards(
    axis: Axis, shares: tuple[int, ...], places: str, *, joined: bool = False, span: tuple[int, int] = (2, 2)
) -> Plan:
    """Layers before on `a`, shards on `places`, and the rest on the first of these, with the join if there is one."""
    first, last = span
    stages = [Stage(((0, first - 1),), (("a",),))]
    after = (0,)
    for part, place in enumerate(places):
        stages.append(Stage((span,), ((place,),), after, split=Split(span, axis, shares, part)))
    behind = tuple(range(1, 1 + len(places)))
    join = Split(span, axis, shares, len(shares)) if joined else None
    begin = first if joined else last + 1
    return Plan((*stages, Stage(((begin, 5),), ((places[0],),), behind, split=join)))


HALVES = shards("channels", (48, 16), "ab")
SUMS = shards("inputs", (31, 1), "ab", joined=True)
JOINED = shards("columns", (3, 3, 4), "abc", joined=True, span=(4, 4))
TILES = shards("rows", (9, 11), "ab", span=(1, 2))


@pytest.mark.parametrize("plan", [HALVES, SUMS, JOINED, TILES])
def test_written_down_and_read_again(plan: Plan) -> None:
    assert RULES.problems(plan) == []
    assert plan_of(json.loads(json.dumps(written(plan)))) == plan
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan
    assert not plan.is_chain
    assert not any(stage.is_plain for stage in plan.stages[1:-1])


def test_as_strangers_read_it() -> None:
    split = {"first": 2, "last": 2, "axis": "channels", "shares": [48, 16]}
    assert written(HALVES) == [
        {"first": 0, "last": 1, "places": ["a"]},
        {"first": 2, "last": 2, "places": ["a"], "split": split},
        {"first": 2, "last": 2, "places": ["b"], "after": [0], "split": split},
        {"first": 3, "last": 5, "places": ["a"], "after": [1, 2]},
    ]
    assert str(HALVES) == "a: 0-1 | a: 2-2 (48 of 64 channels) | b: 2-2 (16 of 64 channels) after 0 | a: 3-5 after 1,2"
    assert written(SUMS)[-1]["split"]["axis"] == "inputs"
    assert str(SUMS.stages[-1]) == "a: 2-5 (joins 2 shards)"


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (shards("channels", (32, 16), "ab"), "that make up 64"),
        (shards("channels", (40, 24), "ab"), "multiples of 16"),
        (shards("channels", (64,), "a"), "that make up 64"),
        (shards("groups", (1, 1), "ab"), "layers 2-2 cannot be split"),
        (shards("channels", (8, 8), "ab", span=(3, 3)), "Softmax needs all"),
        (shards("inputs", (16, 16), "ab"), "and then one"),
        (shards("channels", (32, 32), "ab", joined=True), "2 shares"),
        (Plan(HALVES.stages[:2] + HALVES.stages[3:]), "stand in 1 stages"),
        (Plan((*HALVES.stages[:2], *9 * [HALVES.stages[2]], HALVES.stages[3])), "in 10 stages"),
        (Plan((*HALVES.stages[:3], replace(HALVES.stages[3], after=(1,)))), "expected 2 in `after`"),
        (Plan((*SUMS.stages[:3], replace(SUMS.stages[3], after=(2,)))), "expected 1 in `after`"),
        (Plan((HALVES.stages[0], HALVES.stages[1], replace(HALVES.stages[2], after=()), HALVES.stages[3])), "`after`"),
        (Plan((*HALVES.stages[:3], replace(HALVES.stages[3], work=((2, 5),)))), "layer 2 is in stages 1, 3"),
        (
            Plan(
                (
                    *HALVES.stages[:2],
                    replace(HALVES.stages[2], work=((2, 3),)),
                    replace(HALVES.stages[3], work=((4, 5),)),
                )
            ),
            "shard of layers 2-2",
        ),
        (Plan((*SUMS.stages[:3], replace(SUMS.stages[3], work=((3, 5),)))), "expected it to begin with those"),
        (shards("columns", (1,) * 10, "abcabcabca", joined=True, span=(4, 4)), "more shards of"),
        (shards("columns", (3, 3, 2, 2), "abca", joined=True, span=(4, 4)), "more shards of"),
    ],
)
def test_what_is_wrong(plan: Plan, fault: str) -> None:
    faults = RULES.problems(plan)
    assert any(fault in problem for problem in faults), faults


def test_a_shard_has_its_share_of_the_weights_and_a_join_none() -> None:
    """On a: layers 0 and 1, three quarters of layer 2, and the rest."""
    limits = replace(RULES, memory_bytes={"a": 100 + 100 + 480 + 1200 + 10, "b": 170})
    assert limits.problems(HALVES) == []
    assert "b would need 170 bytes" in "".join(replace(limits, memory_bytes={"b": 169}).problems(HALVES))
    assert "a would need 1890 bytes" in "".join(replace(limits, memory_bytes={"a": 1889}).problems(HALVES))
    assert "a would need 2030 bytes" in "".join(replace(limits, memory_bytes={"a": 1}).problems(SUMS))
    assert "b would need 750 bytes" in "".join(replace(limits, memory_bytes={"b": 1}).problems(TILES))


def test_every_layer_may_have_a_stage_and_one_of_them_shards() -> None:
    ones = [Stage(((layer, layer),), (("a",),), ((layer,) if layer > 3 else (1 + (layer == 3),))) for layer in range(6)]
    shares = [
        Stage(((2, 2),), ((place,),), (1,), split=HALVES.stages[1 + part].split) for part, place in enumerate("ab")
    ]
    plan = Plan(
        (
            replace(ones[0], after=()),
            replace(ones[1], after=(0,)),
            *shares,
            replace(ones[3], after=(2, 3)),
            replace(ones[4], after=(4,)),
            replace(ones[5], after=(5,)),
        )
    )
    assert RULES.problems(plan) == []


def test_shards_are_of_the_default_engine_and_no_chain() -> None:
    spinning = replace(RULES, engines=("onnxruntime", "onnxruntime-spin"))
    stages = list(HALVES.stages)
    stages[1] = replace(stages[1], engine="onnxruntime-spin")
    assert "not onnxruntime-spin" in "".join(spinning.problems(Plan(tuple(stages))))
    assert not Plan((Stage(((2, 2),), (("a",),), split=stages[1].split),)).is_chain


def test_what_must_be_done_to_have_a_layer() -> None:
    assert HALVES.made_by(6) == ((0,), (0,), (1, 2), (3,), (3,), (3,))
    assert SUMS.made_by(6) == ((0,), (0,), (3,), (3,), (3,), (3,))
    assert [SUMS.ancestors(stage) for stage in range(4)] == [set(), {0}, {0}, {0, 1, 2}]


def test_a_shard_is_a_fraction_of_its_layers_and_a_join_has_none() -> None:
    fractions = [Split((2, 2), "channels", (48, 16), part).fraction for part in range(3)]
    assert fractions == [0.75, 0.25, 0.0]
    assert [way.rooms("c", 2) for way in SPLITS[:2]] == [("c",), ("c#0", "c#1")]


def test_an_axis_that_is_none_is_told_of_with_those_there_are() -> None:
    stages = written(HALVES)
    stages[1]["split"] = {**stages[1]["split"], "axis": "depth"}
    with pytest.raises(msgspec.ValidationError, match="axis: 'depth';"):
        plan_of(stages)
