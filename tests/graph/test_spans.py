"""Groups of layers; what a run of operators reads and hands on is told by the tests of layers and segments."""

from __future__ import annotations

from shisha_rt.graph.spans import groups_of, starts_of


def test_groups_are_joined_by_illegal_cuts() -> None:
    assert groups_of(5, {3, 0}) == ((0, 0), (1, 3), (4, 4))
    assert groups_of(3, ()) == ((0, 2),)


def test_without_a_word_on_cuts_all_are_legal() -> None:
    assert groups_of(3, None) == ((0, 0), (1, 1), (2, 2))


def test_starts_end_with_the_number_of_layers() -> None:
    assert starts_of(5, {3, 0}) == (0, 1, 4, 5)
    assert starts_of(1, None) == (0, 1)
