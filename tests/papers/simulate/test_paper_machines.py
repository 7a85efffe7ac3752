"""C1 to C6 against Table 2, and against the shipped files that scale them down."""

from __future__ import annotations

import pytest

from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.model.layers import group_layers
from shisha_rt.papers.simulate.paper_machines import CONFIGURATIONS, paper_machine
from shisha_rt.papers.simulate.roofline import roofline_costs
from tests.costs.networks import chain


def test_a_machine_of_two_classes() -> None:
    machine = paper_machine("C3")
    assert [(p.name, p.core_count, p.speed, p.rank, p.memory) for p in machine.places] == [
        *((f"fast{i}", 4, 1.0, 1, "hbm") for i in range(4)),
        *((f"slow{i}", 8, pytest.approx(1 / 3), 2, "ddr") for i in range(2)),
    ]
    assert machine.name == "C3 (simulated)"
    assert not any(place.cores for place in machine.places)


@pytest.mark.parametrize("slowdown", [3, 6, 12])
def test_a_slow_core_takes_so_many_times_as_long(slowdown: float) -> None:
    graph = chain([4, 8])
    costs = roofline_costs(graph, group_layers(graph), paper_machine("C1", slowdown), core_flops=1.0)
    assert costs.time_s[0, 1] / costs.time_s[0, 0] == pytest.approx(slowdown)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_shipped_files_are_the_same_machines(name: str) -> None:
    paper, shipped = paper_machine(name), load_machine(name.lower())
    assert [(p.name, p.rank, p.memory) for p in paper.places] == [(p.name, p.rank, p.memory) for p in shipped.places]
    rates = [p.core_count * p.speed for p in paper.places]
    scale = shipped.places[0].speed / rates[0]
    assert [p.speed for p in shipped.places] == pytest.approx([scale * rate for rate in rates])
