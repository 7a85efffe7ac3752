"""Pictures: the lines that a reader sees, wide and narrow."""

from __future__ import annotations

import pytest

from shisha_rt.cli.views.picture import Box, draw, marks, ribbon, span

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


def test_no_stages_no_picture() -> None:
    assert draw([], 80) == ""


def test_span() -> None:
    assert (span(3, 5), span(3, 3)) == ("layers 3-5", "layer 3")


@pytest.mark.parametrize(
    ("stretches", "width", "expected"),
    [
        ([("█", 3), ("░", 2)], 32, "███░░"),
        ([("▒", 3), ("█", 2), ("░", 1)], 32, "▒▒▒██░"),
        ([("█", 6), ("░", 4)], 5, "███░░"),
        ([("█", 1), ("░", 99)], 10, "░" * 10),
    ],
)
def test_ribbon(stretches: list[tuple[str, int]], width: int, expected: str) -> None:
    assert ribbon(stretches, width) == expected


def test_a_mark_for_each_place() -> None:
    assert marks(["a", "b"]) == {"a": "█", "b": "▓"}
    many = [f"p{i}" for i in range(40)]
    assert list(marks(many)) == many
    assert len(set(list(marks(many).values())[:30])) == 30
