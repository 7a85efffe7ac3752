"""COSTS.json: what is read, what follows from it, and the one line for each mistake."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

import numpy as np
import pytest

from shisha_rt.costs.costs import Costs, stage_bytes, stage_service_s, why_infeasible
from shisha_rt.costs.costs_file import costs_object, parse_costs
from shisha_rt.errors import BadInput
from shisha_rt.model.split import AXES
from tests.wording import says


def good() -> dict[str, Any]:
    return {
        "layers": [
            {"name": "a", "weight": 9, "weight_bytes": 100, "live_bytes": 7},
            {"name": "b", "weight": 4.5, "weight_bytes": 10, "live_bytes": 20},
            {"name": "c", "weight": 0},
        ],
        "places": [{"name": "fast", "rank": 1, "memory_bytes": 120}, {"name": "slow", "rank": 2}],
        "time_s": [[1, 3], [0.5, 2], [0.25, None]],
        "transfer_s": [0.125, None],
    }


def parse(value: object) -> Costs:
    return parse_costs(json.dumps(value).encode(), "C.json")


def fault(text: bytes) -> str:
    with pytest.raises(BadInput) as caught:
        parse_costs(text, "C.json")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("C.json: ")
    return message.removeprefix("C.json: ")


class TestReading:
    def test_every_key(self) -> None:
        costs = parse(good())
        assert [layer.name for layer in costs.layers] == ["a", "b", "c"]
        assert (costs.layers[0].weight, costs.layers[0].weight_bytes, costs.layers[0].live_bytes) == (9, 100, 7)
        assert [(p.name, p.rank, p.memory_bytes) for p in costs.places] == [("fast", 1, 120), ("slow", 2, None)]
        np.testing.assert_array_equal(costs.time_s, [[1, 3], [0.5, 2], [0.25, np.nan]])
        np.testing.assert_array_equal(costs.transfer_s, [0.125, np.nan])
        assert costs.legal_cuts == {0}
        assert costs.place_index("slow") == 1

    def test_without_transfers_every_cut_is_legal_and_free(self) -> None:
        value = good()
        del value["transfer_s"]
        costs = parse(value)
        assert costs.legal_cuts == {0, 1}
        assert costs.transfer_s.tolist() == [0.0, 0.0]

    def test_one_layer_has_no_cuts(self) -> None:
        costs = parse({"layers": [{"name": "a", "weight": 1}], "places": [{"name": "p", "rank": 1}], "time_s": [[1]]})
        assert costs.legal_cuts == frozenset()
        assert stage_service_s(costs, 0, 0, 0) == 1.0

    def test_a_place_that_cannot_run_a_layer_is_null_or_a_key_that_is_not_there(self) -> None:
        whole, names = good(), [place["name"] for place in good()["places"]]
        whole["time_s"] = [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in whole["time_s"]
        ]
        np.testing.assert_array_equal(parse(whole).time_s, parse(good()).time_s)
        whole["time_s"][2] |= {names[1]: None}
        np.testing.assert_array_equal(parse(whole).time_s, parse(good()).time_s)

    def test_a_whole_number_may_be_written_as_one_with_a_point(self) -> None:
        whole = good()
        for place in whole["places"]:
            place |= {"rank": float(place["rank"]), "memory_bytes": 17179869184.0}
        assert [place.memory_bytes for place in parse(whole).places] == [17179869184] * 2
        assert all(isinstance(place.memory_bytes, int) for place in parse(whole).places)
        assert [place.rank for place in parse(whole).places] == [place.rank for place in parse(good()).places]

    @pytest.mark.parametrize(
        "key", ["transfer_s", "teams", "mixed", "splits", "shard_s", "tensors", "links", "batches"]
    )
    def test_null_is_as_good_as_an_optional_key_that_is_not_there(self, key: str) -> None:
        value = good()
        value.pop(key, None)
        value["layers"][2] |= {"weight_bytes": None, "live_bytes": None}
        value["places"][1] |= {"memory_bytes": None, "host": None, "power_w": None}
        assert costs_object(parse(value | {key: None})) == costs_object(parse(value))

    def test_null_is_not_left_out_where_it_is_a_value(self) -> None:
        split = {"first": 0, "last": 0, "axis": "rows", "units": 4}
        shares = {"base_s": 1, "unit_s": 2, "most": None, "join_s": None}
        (read,) = parse(good() | {"splits": [split | {"told": {"fast": shares}}]}).splits.shard_times.values()
        assert (read.base_s, read.unit_s, read.join_s) == (1, 2, math.inf)

    def test_the_arrays_are_read_only(self) -> None:
        costs = parse(good())
        with pytest.raises(ValueError, match="read-only"):
            costs.time_s[0, 0] = 0.0

    def test_what_is_too_little_to_be_any_time_is_none(self) -> None:
        costs = parse(good() | {"time_s": [[1e-320, 2], [1e-29, 3], [1e15, None]]})
        assert costs.time_s[:, 0].tolist() == [0, 1e-29, 1e15]


class TestStages:
    def test_service_time_includes_the_entry_transfer(self) -> None:
        costs = parse(good())
        assert stage_service_s(costs, 0, 1, 0) == 1.5
        assert stage_service_s(costs, 1, 1, 1) == 2.125
        assert stage_service_s(costs, 1, 2, 0) == 0.875

    def test_nan_where_the_place_cannot_run_a_layer_or_the_cut_is_not_legal(self) -> None:
        costs = parse(good())
        assert math.isnan(stage_service_s(costs, 1, 2, 1))
        assert math.isnan(stage_service_s(costs, 2, 2, 0))

    def test_bytes_are_all_weights_and_the_most_that_is_live(self) -> None:
        assert stage_bytes(parse(good()), 0, 2) == 130
        assert stage_bytes(parse(good()), 0, 0) == 107

    def test_why_a_place_cannot_run_a_stage(self) -> None:
        costs = parse(good())
        assert why_infeasible(costs, 0, 0, 0) is None
        assert why_infeasible(costs, 0, 1, 0) == says("layers 0-1 need 130 bytes, and … has 120")
        assert why_infeasible(costs, 1, 2, 1) == says("… cannot run layer 2 (c)")


def changed(path: list[str | int], value: object) -> bytes:
    """The good file with one value set (or removed: ...)."""
    whole = good()
    at: Any = whole
    for step in path[:-1]:
        at = at[step]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["layers"], [], "layers = []"),
        (["layers"], ..., "layers is missing"),
        (["layers"], 3, "layers = 3"),
        (["layers", 1, "name"], ..., "layers[1].name is missing"),
        (["layers", 1, "name"], "\x1b[2J", r'layers[1].name = "\u001b[2J": expected text'),
        (["layers", 1, "weight"], ..., "layers[1].weight is missing"),
        (["layers", 1, "weight"], -1, "layers[1].weight = -1: expected a number >= 0"),
        (["layers", 1, "weight"], "9", 'layers[1].weight = "9"'),
        (["layers", 1, "weight_bytes"], 1.5, "layers[1].weight_bytes = 1.5"),
        (["layers", 1, "live_bytes"], -1, "layers[1].live_bytes = -1"),
        (["layers", 1, "bytes"], 1, "layers[1].bytes = 1: unknown key"),
        (["places"], [], "places = []"),
        (["places", 0, "rank"], ..., "places[0].rank is missing"),
        (["places", 0, "rank"], 0, "places[0].rank = 0"),
        (["places", 0, "name"], "", 'places[0].name = ""'),
        (["places", 1, "name"], "fast", 'places[1].name = "fast": used twice'),
        (["places", 0, "memory_bytes"], -1, "places[0].memory_bytes = -1"),
        (["places", 0, "memory_bytes"], 1e25, "places[0].memory_bytes = 1e+25"),
        (["places", 0, "rank"], 10**20, f"places[0].rank = {10**20}"),
        (["time_s"], ..., "time_s is missing"),
        (["time_s"], [[1, 2]], "time_s has 1 entry"),
        (["time_s", 1], [1], "time_s[1] has 1 entry"),
        (["time_s", 1, 0], -0.1, "time_s[1][0] = -0.1: expected a number >= 0"),
        (["time_s", 1, 0], 1e308, "time_s[1][0] = 1e+308: expected a number <= 1000000000000000.0"),
        (["layers", 1, "weight"], 1e308, "layers[1].weight = 1e+308: expected a number <= 1e+30"),
        (["time_s", 1, 0], "1", 'time_s[1][0] = "1"'),
        (["time_s", 1, 0], True, "time_s[1][0] = true"),
        (["transfer_s"], [0.1], "transfer_s has 1 entry"),
        (["transfer_s", 0], -1, "transfer_s[0] = -1: expected a number >= 0"),
        (["transfers_s"], [], "transfers_s = []: unknown key"),
        (["time_s", 0, 0], float("nan"), "time_s[0][0] = NaN"),
        (["time_s", 2, 1], float("inf"), "time_s[2][1] = Infinity"),
        (["layers", 1, "weight"], float("-inf"), "layers[1].weight = -Infinity"),
        (["time_s", 1], {"fast": 1, "no": 2}, "time_s[1]: no such place"),
        (["time_s", 1], {"fast": -1}, "time_s[1].fast = -1"),
        (["time_s", 1], {"fast": 1, "slow": "2"}, 'time_s[1].slow = "2"'),
        (["time_s", 1], 1, "time_s[1] = 1"),
    ],
)
def test_one_line_says_what_to_mend(path: list[str | int], value: object, expected: str) -> None:
    assert fault(changed(path, value)).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "not JSON: "),
        (b"{", "not JSON: "),
        (b"\xff", "not JSON: "),
        (b"[]", "expected a table, got a list"),
        (b"[" * 100_000, "nested too deeply"),
        (
            changed(["time_s", 0, 0], 1).replace(b"[[1,", b"[[1e999,"),
            "time_s[0][0] = Infinity",
        ),
        (b'{"layers": Infinity', "not JSON: "),
        (changed(["layers", 0, "weight"], 10**400), "layers[0].weight = 1000"),
    ],
)
def test_what_is_not_even_an_object(text: bytes, expected: str) -> None:
    assert fault(text).startswith(expected)


@pytest.mark.parametrize("depth", [*range(900, 1100, 4), 5000])
@pytest.mark.parametrize("key", ["layers", "time_s", "nonsense"])
def test_however_deep_it_is_nested_one_line_says_so(key: str, depth: int) -> None:
    """Also just short of what the interpreter can read: that may be too deep for it to write."""
    assert fault(b'{"%s":%s1%s}' % (key.encode(), b"[" * depth, b"]" * depth))


def with_batches(*batches: dict[str, Any]) -> dict[str, Any]:
    return good() | {"batches": list(batches)}


class TestBatches:
    EIGHT: ClassVar = {"frames": 8, "time_s": [[0.5, 3], [0.25, None], [0.125, None]]}
    TWO: ClassVar = {"frames": 2, "time_s": [[0.75, 3], {"fast": 0.25}, [0.125, None]]}

    def test_what_is_read_is_written_the_fewest_frames_first(self) -> None:
        costs = parse(with_batches(self.EIGHT, self.TWO))
        assert [batch.frames for batch in costs.batches] == [2, 8]
        np.testing.assert_array_equal(costs.batches[0].time_s, [[0.75, 3], [0.25, np.nan], [0.125, np.nan]])
        written = costs_object(costs)["batches"]
        assert written[1] == self.EIGHT
        assert [batch.frames for batch in parse(good() | {"batches": written}).batches] == [2, 8]
        assert "batches" not in costs_object(parse(good()))

    def test_other_numbers_of_frames_count_as_the_next_lower_one(self) -> None:
        costs = parse(with_batches(self.EIGHT, self.TWO))
        known = {frames: costs.batch_of(frames) for frames in (1, 2, 7, 8, 64)}
        assert {frames: batch and batch.frames for frames, batch in known.items()} == {1: None, 2: 2, 7: 2, 8: 8, 64: 8}

    @pytest.mark.parametrize(
        ("batches", "expected"),
        [
            ([EIGHT | {"frames": 1}], "batches[0].frames = 1: … >= 2"),
            ([EIGHT | {"frames": 65}], "batches[0].frames = 65: … <= 64"),
            ([TWO, EIGHT | {"frames": 2}], "batches[1].frames = 2: used twice, … batches[0], expected …"),
            ([TWO, EIGHT | {"time_s": [[1, 1]]}], "batches[1].time_s has 1 entry, expected 3: …"),
            ([EIGHT | {"time_s": [[1], [1, 1], [1, 1]]}], "batches[0].time_s[0] has 1 entry, expected 2: …"),
            ([EIGHT | {"time_s": [[1, 1], {"no": 1}, [1, 1]]}], "batches[0].time_s[1]: no such place as …"),
            ([EIGHT | {"seconds": 1}], "batches[0].seconds = 1: unknown key…"),
        ],
    )
    def test_one_line_says_what_to_mend(self, batches: list[dict[str, Any]], expected: str) -> None:
        assert fault(json.dumps(with_batches(*batches)).encode()) == says(expected)


def with_teams(*teams: dict[str, Any]) -> dict[str, Any]:
    places = [{"name": name, "rank": 1} for name in ("p", "q", "r")]
    return good() | {"places": places, "time_s": [[1, 1, 3], [0.5, 0.5, 2], [0.25, 0.25, 1]], "teams": list(teams)}


class TestTeams:
    def test_what_is_read_is_written(self) -> None:
        value = with_teams({"places": ["q", "p"], "time_s": [0.75, 0.5, None]})
        costs = parse(value)
        assert costs.teams[0].places == ("q", "p")
        np.testing.assert_array_equal(costs.teams[0].time_s, [0.75, 0.5, np.nan])
        assert costs_object(costs)["teams"] == value["teams"]
        assert "teams" not in costs_object(parse(good()))

    @pytest.mark.parametrize(
        ("teams", "expected"),
        [
            ([{"places": ["p"], "time_s": [1, 1, 1]}], 'teams[0].places = ["p"]: … >= 2'),
            ([{"places": ["p", "x"], "time_s": [1, 1, 1]}], 'teams[0].places has "x", expected one of p, q, r'),
            ([{"places": ["p", "p"], "time_s": [1, 1, 1]}], 'teams[0].places has "p" twice, …'),
            (
                [{"places": ["p", "r"], "time_s": [1, 1, 1]}],
                "teams[0].places = p, r: … memory_bytes",
            ),
            (
                [{"places": ["p", "q"], "time_s": [1, 1, 1]}, {"places": ["q", "p"], "time_s": [1, 1, 1]}],
                "teams[1].places = q, p: used twice, … teams[0], expected …",
            ),
            (
                [{"places": ["p", "q"], "time_s": [1]}],
                "teams[0].time_s has 1 entry, … 3: one for each …",
            ),
        ],
    )
    def test_what_is_no_team(self, teams: list[dict[str, Any]], expected: str) -> None:
        assert fault(json.dumps(with_teams(*teams)).encode()) == says(expected)


def with_splits(*splits: dict[str, Any]) -> dict[str, Any]:
    return good() | {"splits": list(splits)}


CHANNELS = {"first": 0, "last": 0, "axis": "channels", "units": 64}
ROWS = {
    "first": 1,
    "last": 2,
    "axis": "rows",
    "units": 7,
    "block": 2,
    "summed": False,
    "joined": True,
    "join_part": 0.25,
}


class TestSplits:
    def test_what_is_read_is_written(self) -> None:
        value = with_splits(CHANNELS, ROWS) | {"shard_s": 0.25}
        costs = parse(value)
        assert [(way.first, way.last, way.axis, way.units, way.block) for way in costs.splits.splittables] == [
            (0, 0, "channels", 64, 1),
            (1, 2, "rows", 7, 2),
        ]
        assert costs.splits.overhead_s == 0.25
        again = costs_object(costs)
        assert again["splits"] == [CHANNELS | {"block": 1, "summed": False, "joined": False, "join_part": 0.0}, ROWS]
        assert parse(again).splits.splittables == costs.splits.splittables
        assert "splits" not in costs_object(parse(good()))

    @pytest.mark.parametrize(
        ("splits", "expected"),
        [
            ([CHANNELS | {"last": 3}], "splits[0]: layers 0-3"),
            ([CHANNELS | {"first": 1}], "splits[0]: layers 1-0"),
            ([ROWS | {"last": 1}], "splits[0]: layers 1-1 cannot be cut"),
            ([CHANNELS | {"block": 64}], "splits[0].block = 64"),
            ([CHANNELS | {"units": 1}], "splits[0].units = 1"),
            ([CHANNELS | {"axis": "depth"}], 'splits[0].axis = "depth": '),
            ([CHANNELS | {"shares": 2}], "splits[0].shares = 2: unknown key"),
            (
                [CHANNELS | {"told": {"fast": {"a": 1}}}],
                "splits[0].told.fast.a = 1: unknown key",
            ),
            ([CHANNELS | {"told": {"fast": {"base_s": 1}}}], "splits[0].told.fast.unit_s is missing"),
            (
                [CHANNELS | {"told": {"fast": {"base_s": 1.0, "unit_s": 1, "most": None}, "slow": 1}}],
                "splits[0].told.slow = 1: ",
            ),
            ([CHANNELS, CHANNELS | {"units": 8}], "splits[1] = channels of 0-0: used twice"),
        ],
    )
    def test_what_is_no_split(self, splits: list[dict[str, Any]], expected: str) -> None:
        assert fault(json.dumps(with_splits(*splits)).encode()).startswith(expected)

    def test_an_unknown_axis_is_told_which_there_are(self) -> None:
        said = fault(json.dumps(with_splits(CHANNELS | {"axis": "depth"})).encode())
        assert said.endswith(", ".join(AXES))
