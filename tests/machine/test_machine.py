"""A place whose speed changes may change its class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shisha_rt.machine.config.machine_file import load_machine, parse_machine
from shisha_rt.machine.machine import Machine


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


def machine_of(*places: str, extra: str = "") -> Machine:
    text = "".join(f'[[place]]\nname = "p{i}"\n{lines}\n' for i, lines in enumerate(places))
    return parse_machine(extra + text, name="paper", source="paper.toml")


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, []), (2, [2]), (3, [2, 3]), (4, [2, 4]), (5, [2, 4, 5]), (8, [2, 4, 8]), (9, [2, 4, 8, 9])]
)
def test_one_team_of_each_size_begins_with_the_first_places(count: int, sizes: list[int]) -> None:
    teams = machine_of(*["core_count = 1"] * count).teams
    assert list(teams) == [tuple(f"p{i}" for i in range(size)) for size in sizes]


def test_only_alike_places_that_are_not_emulated_form_teams() -> None:
    fast, wide, slow = "core_count = 1", "core_count = 2", "core_count = 1\nspeed = 0.5"
    machine = machine_of(fast, wide, slow, fast, wide, slow, fast, 'core_count = 1\ndevices = ["ort_serial"]')
    assert machine.teams == (("p0", "p3"), ("p1", "p4"), ("p0", "p3", "p6"))
    assert replace(machine, time_scale=2.0).teams == ()
    narrow = '[[memory]]\nname = "ram"\nbandwidth_bytes_per_s = 1e9\n'
    assert machine_of(f'{fast}\nmemory = "ram"', f'{fast}\nmemory = "ram"', extra=narrow).teams == ()
    shared = f"{fast}\nshared = true"
    assert machine_of(shared, shared).teams == ()


def test_a_team_has_all_cores_and_threads_under_its_leads_name() -> None:
    machine = load_machine("demo")
    first, *_, last = (replace(place, cores=(at, at + 8)) for at, place in enumerate(machine.places))
    machine = replace(machine, places=(first, last))
    together = machine.together((last.name, first.name))
    assert together.name == last.name
    assert together.cores == last.cores + first.cores
    assert (together.threads, together.core_count) == (2 * first.threads, first.core_count + last.core_count)
    assert machine.together((first.name,)) == first
    assert machine.as_one((last.name, first.name)).places == (together,)
