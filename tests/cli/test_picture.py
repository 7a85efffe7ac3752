"""Pictures: the lines that a reader sees, wide and narrow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shisha_rt.model.spans import layers_in_words
from shisha_rt.plan.plan import Stage, Team
from shisha_rt.show.picture import (
    Box,
    after_in_words,
    draw,
    marks,
    ribbon,
    stage_in_words,
    teams_in_words,
)

BOXES = [Box("fast0", "layers 0-11", "1.00 ms", 0.5), Box("slow0", "layer 12", "2.00 ms", 1.0, is_slowest=True)]


def test_side_by_side_where_there_is_room() -> None:
    assert draw(BOXES, 57).splitlines() == [
        "┌ fast0 ─────────────────┐    ┏ slow0 ━━━━━━━━ slowest ┓",
        "│ layers 0-11            │ ─▶ ┃ layer 12               ┃",
        "│ 1.00 ms ███████        │    ┃ 2.00 ms ██████████████ ┃",
        "└────────────────────────┘    ┗━━━━━━━━━━━━━━━━━━━━━━━━┛",
    ]


@pytest.mark.parametrize("width", [56, 80, 200])
def test_no_wider_than_asked_and_never_very_wide(width: int) -> None:
    lines = draw(BOXES, width).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= min(width, 84)


@pytest.mark.parametrize("width", [20, 30, 55])
def test_one_below_the_other_where_there_is_none(width: int) -> None:
    lines = draw(BOXES, width).splitlines()
    assert len(lines) == 9
    assert lines[4] == "  │"
    assert lines[0].startswith("┌ fast0 ─")
    assert lines[5].endswith(" slowest ┓")
    assert max(map(len, lines)) <= max(26, width)


def test_long_names_are_cut() -> None:
    lines = draw([Box("a-place-with-a-very-long-name-of-its-own-in-full", "x" * 90, "y", 2.0)], 30).splitlines()
    assert {len(line) for line in lines} == {30}
    assert "…" in lines[0]
    assert lines[1].endswith("x… │")


def test_a_stage_says_its_engine_and_how_many_frames_share_a_run() -> None:
    stage = Stage(((0, 25),), (("a",), ("b",)))
    assert stage_in_words(stage) == "layers 0-25"
    assert stage_in_words(replace(stage, batch=8)) == "layers 0-25 by 8"
    assert stage_in_words(replace(stage, engine="openvino")) == "layers 0-25, openvino"


def test_no_stages_no_picture() -> None:
    assert draw([], 80) == ""


def test_branches_have_lines_where_these_say_it_all() -> None:
    a, b, c, d = (Box(name, "layer", "1 ms", 0.0) for name in "abcd")
    fork = [a, replace(b, after=(0,)), replace(c, after=(0,)), replace(d, after=(1, 2), is_slowest=True)]
    assert draw(fork, 60).splitlines() == [
        "┌ 0 · a ────────────────────┐",
        "│ input · layer             │",
        "│ 1 ms                      │",
        "└───────────────────────────┘",
        "  ├──────────────────────────────┐",
        "┌ 1 · b ────────────────────┐  ┌ 2 · c ────────────────────┐",
        "│ after 0 · layer           │  │ after 0 · layer           │",
        "│ 1 ms                      │  │ 1 ms                      │",
        "└───────────────────────────┘  └───────────────────────────┘",
        "  ├──────────────────────────────┘",
        "┏ 3 · d ━━━━━━━━━━━ slowest ┓",
        "┃ after 1, 2 · layer        ┃",
        "┃ 1 ms                      ┃",
        "┗━━━━━━━━━━━━━━━━━━━━━━━━━━━┛",
    ]


def joints(boxes: list[Box], width: int) -> list[str]:
    return [line for line in draw(boxes, width).splitlines() if line.startswith(" ")]


def after(*stages: tuple[int, ...]) -> list[Box]:
    return [Box("p", "layer", "1 ms", 0.0, after=stage) for stage in stages]


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        (after((), (), ()), []),
        (after((), (), (0, 1)), ["├┘"]),
        (after((), (0,), (0,), (0,)), ["├┬┐"]),
        (after((), (0,), (0,), (1, 2), (1, 2)), ["├┐", "├┤"]),
        (after((), (0,), (0,), (0,), (1, 2, 3), (1, 2, 3)), ["├┬┐", "├┼┘"]),
        (after((), (0,), (0,), (1,), (2,)), ["├┐", "┆"]),  # two chains side by side
        (after((), (0,), (0, 1)), ["│", "┆"]),  # past a stage
    ],
)
def test_lines_between_branches(boxes: list[Box], expected: list[str]) -> None:
    assert [line.strip().replace("─", "") for line in joints(boxes, 120)] == expected


def test_ten_branches_take_several_rows() -> None:
    boxes = after((), *[(0,)] * 10, tuple(range(1, 11)))
    lines = draw(boxes, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith(" ")] == ["  ┆", "  ┆"]
    assert sum("┌ " in line for line in lines) == 1 + 5 + 1
    assert "after 1-10 · layer" in "".join(lines)


def test_a_chain_that_says_so_reads_as_one_that_does_not() -> None:
    said = [replace(box, after=own) for box, own in zip(BOXES, [(), (0,)], strict=True)]
    assert draw(said, 57) == draw(BOXES, 57)


def test_boxes_side_by_side_are_of_one_height() -> None:
    lines = draw([replace(BOXES[0], notes=("one", "two")), BOXES[1]], 57).splitlines()
    assert len(lines) == 6
    assert {len(line) for line in lines} == {56}
    assert [line[2:5] for line in lines[3:5]] == ["one", "two"]


@pytest.mark.parametrize(
    ("teams", "expected"),
    [
        ([("a",)], "a"),
        ([("a",), ("b",)], "x2: a, b"),
        ([("a", "b", "c")], "3 together: a+b+c"),
        ([("a", "b"), ("c", "d")], "x2 of 2: a+b, c+d"),
        ([("a", "b"), ("c",)], "x2: a+b, c"),
    ],
)
def test_teams_in_words(teams: list[Team], expected: str) -> None:
    assert teams_in_words(teams) == expected


def test_layers_and_what_comes_before_in_words() -> None:
    assert layers_in_words([(3, 5), (9, 9)]) == "layers 3-5, 9"
    assert layers_in_words([(3, 3), (9, 9)]) == "layers 3, 9"
    assert (layers_in_words([(3, 5)]), layers_in_words([(3, 3)])) == ("layers 3-5", "layer 3")
    assert [after_in_words(before) for before in ((), (0,), (1, 0), (0, 2, 3, 4))] == [
        "input",
        "after 0",
        "after 0, 1",
        "after 0, 2-4",
    ]


@pytest.mark.parametrize(
    ("stretches", "width", "expected"),
    [
        ([("█", 3), ("░", 2)], 32, "███░░"),
        ([("▒", 3), ("█", 2), ("░", 1)], 32, "▒▒▒██░"),
        ([("█", 6), ("░", 4)], 5, "███░░"),
        ([("█", 1), ("░", 99)], 10, "░" * 10),
        ([("█▓", 3), ("▒░", 2)], 32, "█▓█▒░"),
    ],
)
def test_ribbon(stretches: list[tuple[str, int]], width: int, expected: str) -> None:
    assert ribbon(stretches, width) == expected


def test_a_mark_for_each_place() -> None:
    assert marks(["a", "b"]) == {"a": "█", "b": "▓"}
    many = [f"p{i}" for i in range(40)]
    assert list(marks(many)) == many
    assert len(set(list(marks(many).values())[:30])) == 30
