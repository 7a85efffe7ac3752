"""PROBLEM.json: what is read, what follows from it, and the one line for each mistake."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from shisha_rt.errors import BadInput
from shisha_rt.placement.problem import Group, Problem
from shisha_rt.placement.problem_file import chain_links, parse_problem
from tests.placement.problem_object import problem_object
from tests.placement.random_problems import SHAPES, random_problem
from tests.wording import says


def good() -> dict[str, Any]:
    """The chain a, b, c, d; and a second tensor of a that c and d read."""
    return {
        "devices": ["cpu_s", "cpu_p", "pim"],
        "memories": {"cpu_s": "dram", "cpu_p": "dram", "pim": "pim"},
        "nodes": [
            {"name": "a", "op": "Gemm", "cost_s": {"cpu_s": 2, "cpu_p": 1, "pim": 0.5}},
            {"name": "b", "cost_s": {"pim": 0.5, "cpu_s": 0}},
            {"name": "c", "cost_s": {"cpu_p": 1}},
            {"name": "d", "cost_s": {"cpu_p": 1, "pim": 1}},
        ],
        "tensors": [
            {"name": "ab", "producer": "a", "consumers": ["b"], "transfer_s": {"cpu_s->pim": 3, "pim->cpu_p": 4}},
            {"name": "acd", "producer": "a", "consumers": ["d", "c", "d"]},
            {"name": "bc", "producer": "b", "consumers": ["c"], "transfer_s": {}},
            {"name": "cd", "producer": "c", "consumers": ["d"], "transfer_s": {"cpu_s->cpu_p": 9}},
        ],
        "groups": [{"nodes": ["a", "b", "c"], "device": "cpu_p", "cost_s": 1.5}],
        "transfer_counting": "per_edge",
    }


def same_from_one_device(value: dict[str, Any]) -> dict[str, Any]:
    """`pim->cpu_s` as the good file's `pim->cpu_p`: into a shared memory both must be stated alike."""
    value["tensors"][0]["transfer_s"]["pim->cpu_s"] = 4
    return value


def parse(value: object) -> Problem:
    return parse_problem(json.dumps(value), "P.json")


def fault(text: bytes | str) -> str:
    with pytest.raises(BadInput) as caught:
        parse_problem(text, "P.json")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("P.json: ")
    return message.removeprefix("P.json: ")


class TestReading:
    def test_every_key(self) -> None:
        problem = parse(same_from_one_device(good()))
        assert (problem.devices, problem.memories, problem.memory_of) == (
            ("cpu_s", "cpu_p", "pim"),
            ("dram", "pim"),
            (0, 0, 1),
        )
        assert [(node.name, node.op) for node in problem.nodes] == [("a", "Gemm"), ("b", ""), ("c", ""), ("d", "")]
        assert problem.nodes[1].cost_s == (0, math.inf, 0.5)
        assert problem.nodes[1].capable == (0, 2)
        assert [(t.producer, t.consumers) for t in problem.tensors] == [(0, (1,)), (0, (2, 3)), (1, (2,)), (2, (3,))]
        assert problem.tensors[0].transfer_s == ((0, 3), (0, 0), (4, 0))
        assert problem.groups == (Group((0, 1, 2), 1, 1.5),)
        assert problem.transfer_counting == "per_edge"

    def test_transfers_within_a_memory_are_free_whatever_is_written(self) -> None:
        problem = parse(same_from_one_device(good()))
        assert problem.edge_cost_s(problem.tensors[3], 0, 1) == 0

    def test_null_is_as_good_as_no_key_where_a_device_cannot_run_a_node(self) -> None:
        value = same_from_one_device(good())
        value["nodes"][1]["cost_s"] |= {"cpu_p": None}
        assert parse(value) == parse(same_from_one_device(good()))

    @pytest.mark.parametrize("key", ["memories", "processors", "groups", "transfer_counting"])
    def test_null_is_as_good_as_an_optional_key_that_is_not_there(self, key: str) -> None:
        value = good()
        value.pop(key, None)
        written = value | {key: None}
        written["nodes"] = [value["nodes"][0], *({"op": None} | node for node in value["nodes"][1:])]
        written["tensors"] = [{"transfer_s": None} | tensor for tensor in value["tensors"]]
        if key != "memories":
            value, written = same_from_one_device(value), same_from_one_device(written)
        assert parse(written) == parse(value)

    def test_without_memories_each_device_has_its_own(self) -> None:
        value = good()
        del value["memories"], value["groups"], value["transfer_counting"]
        problem = parse(value)
        assert problem.memories == problem.devices
        assert problem.memory_of == (0, 1, 2)
        assert (problem.groups, problem.transfer_counting) == ((), "once")
        assert problem.edge_cost_s(problem.tensors[0], 2, 1) == 4
        assert problem.edge_cost_s(problem.tensors[0], 2, 0) == 0  # a pair that is not given

    def test_who_reads_and_makes_what(self) -> None:
        problem = parse(same_from_one_device(good()))
        assert problem.inputs == ((), (0,), (1, 2), (1, 3))
        assert problem.outputs == ((0, 1), (2,), (3,), ())

    def test_chains_have_no_reader_beside(self) -> None:
        assert chain_links(parse(same_from_one_device(good()))) == {(0, 1), (1, 2), (2, 3)}
        value = same_from_one_device(good())
        value["groups"] = []
        value["tensors"][3]["producer"] = "a"  # now a tensor of a's own goes to d, and a shared one does too
        assert chain_links(parse(value)) == {(0, 1), (1, 2)}

    @pytest.mark.parametrize("shape", SHAPES)
    def test_what_is_written_is_read_back(self, shape: str) -> None:
        rng = random.Random(shape)
        for _ in range(50):
            problem = random_problem(rng, shape, rng.randint(1, 20), rng.randint(1, 4), groups=rng.choice((0, 5)))
            assert parse(problem_object(problem)) == problem


def changed(path: list[str | int], value: object) -> str:
    """The good file with one value set (or removed: ...)."""
    whole = same_from_one_device(good())
    at: Any = whole
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["devices"], [], "devices = []"),
        (["devices"], ["cpu_s", "pim", "pim"], 'devices[2] = "pim": used twice'),
        (["nodes"], [], "nodes = []"),
        (["nodes"], ..., "nodes is missing"),
        (["tensors"], ..., "tensors is missing"),
        (["edges"], [], "edges = []: unknown key"),
        (["transfer_counting"], "twice", 'transfer_counting = "twice": … once, per_edge'),
        # costs
        (["nodes", 1, "cost_s"], ..., "nodes[1].cost_s is missing"),
        (["nodes", 1, "cost_s"], {}, "nodes[1].cost_s has no cost: no device … run b"),
        (["nodes", 1, "cost_s"], {"pim": None}, "nodes[1].cost_s has no cost: no device … run b"),
        (["nodes", 1, "cost_s"], {"pim": 1, "gpu": None}, 'nodes[1].cost_s: "gpu": no such device'),
        (["nodes", 1, "cost_s", "gpu"], 1, 'nodes[1].cost_s: "gpu": no such device'),
        (["nodes", 1, "cost_s", "pim"], -1, "nodes[1].cost_s.pim = -1"),
        (
            ["nodes", 1, "cost_s", "pim"],
            "1",
            'nodes[1].cost_s.pim = "1"',
        ),
        (["nodes", 1, "cost_s", "pim"], math.inf, "nodes[1].cost_s.pim = Infinity"),
        (["nodes", 1, "cost_s", "pim"], math.nan, "nodes[1].cost_s.pim = NaN"),
        (["nodes", 1, "name"], "a", 'nodes[1].name = "a": used twice'),
        (["nodes", 1, "name"], "", 'nodes[1].name = ""'),
        (["nodes", 1, "name"], "\x1b[2J", r'nodes[1].name = "\u001b[2J": expected text'),
        # tensors
        (["tensors", 1, "name"], "ab", 'tensors[1].name = "ab": used twice'),
        (["tensors", 0, "producer"], "x", 'tensors[0].producer = "x": no such node'),
        (["tensors", 0, "consumers"], ["x"], 'tensors[0].consumers[0] = "x": no such node'),
        (["tensors", 2, "consumers"], ["d", "a"], 'tensors[2].consumers[1] = "a": does not … producer b'),
        (["tensors", 2, "consumers"], ["b"], 'tensors[2].consumers[0] = "b": does not … producer b'),
        (["tensors", 0, "transfer_s", "pim->gpu"], 1, 'tensors[0].transfer_s: "pim->gpu": expected DEVICE->DEVICE'),
        (["tensors", 0, "transfer_s", "pim"], 1, 'tensors[0].transfer_s: "pim": expected DEVICE->DEVICE'),
        (["tensors", 0, "transfer_s", "cpu_s->pim"], -1, "tensors[0].transfer_s.cpu_s->pim = -1"),
        (
            ["tensors", 0, "transfer_s", "pim->cpu_s"],
            5,
            "tensors[0].transfer_s: pim->cpu_p costs 4 and pim->cpu_s 5",
        ),
        (["tensors", 0, "transfer_s", "pim->cpu_s"], ..., "tensors[0].transfer_s: pim->cpu_p costs 4 and pim->cpu_s 0"),
        # memories
        (["memories", "pim"], ..., "memories: pim is missing"),
        (["memories", "gpu"], "hbm", 'memories: "gpu": no such device'),
        (["memories", "pim"], "", "memories"),
        (["processors"], {"cpu_s": "cpu"}, "processors: cpu_p is missing"),
        (["processors"], {"gpu": "cpu"}, 'processors: "gpu": no such device'),
        # groups
        (["groups", 0, "nodes"], [], "groups[0].nodes = []"),
        (["groups", 0, "nodes"], ["a", "x"], 'groups[0].nodes[1] = "x": no such node'),
        (["groups", 0, "nodes"], ["a", "c"], "groups[0].nodes: a and c are no chain"),
        (["groups", 0, "nodes"], ["b", "a"], "groups[0].nodes: b and a are"),
        (["groups", 0, "nodes"], ["a", "a"], "groups[0].nodes: a and a"),
        (["groups", 0, "device"], "gpu", 'groups[0].device = "gpu": no such device'),
        (["groups", 0, "cost_s"], -1, "groups[0].cost_s = -1: expected a number >= 0"),
        (["groups", 0, "cost_s"], ..., "groups[0].cost_s is missing"),
        (
            ["groups"],
            [{"nodes": ["a", "b"], "device": "pim", "cost_s": cost_s} for cost_s in (1, 2)],
            "groups[1]: the nodes … of groups[0]",
        ),
    ],
)
def test_one_line_says_what_to_mend(path: list[str | int], value: object, expected: str) -> None:
    assert fault(changed(path, value)) == says(expected + "…")


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", "{", "[" * 100_000, "nodes: []"])
def test_no_json(text: bytes | str) -> None:
    assert fault(text)


def test_a_number_that_overflows_to_infinity() -> None:
    text = changed(["groups", 0, "cost_s"], 12345).replace("12345", "1e999")
    assert fault(text) == says("groups[0].cost_s = Infinity: …")


def test_a_cycle_has_no_topological_order() -> None:
    value = good()
    value["tensors"].append({"name": "da", "producer": "d", "consumers": ["a"]})
    assert fault(json.dumps(same_from_one_device(value))) == (
        says('tensors[4].consumers[0] = "a": does not … producer d, …')
    )
