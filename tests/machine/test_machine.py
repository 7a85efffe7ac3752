"""A place whose speed changes may change its class."""

from __future__ import annotations

import pytest

from shisha_rt.machine.config.machine_file import load_machine


@pytest.mark.parametrize(
    ("name", "speed", "rank"),
    [
        ("fast0", 0.63, 1),
        ("fast0", 0.21, 2),
        ("fast0", 0.3, 2),
        ("fast0", 0.5, 1),
        ("slow0", 0.6, 1),
        ("slow0", 0.1, 2),
    ],
)
def test_the_class_is_that_of_the_nearest_place(name: str, speed: float, rank: int) -> None:
    machine = load_machine("demo")
    assert machine.rank_at(name, speed) == rank
    changed = machine.with_speed(name, speed, machine.rank_at(name, speed)).place(name)
    assert (changed.speed, changed.rank) == (speed, rank)


def test_where_all_places_are_alike_the_class_stays() -> None:
    machine = load_machine("c6")
    name = machine.places[3].name
    assert machine.rank_at(name, machine.places[3].speed / 10) == machine.places[3].rank
