"""A placement as a graph: which transfers it shows, and what operators take."""

from __future__ import annotations

from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor
from shisha_rt.show.placement import placement_dot

COLOUR = 'color="#c0392b", penwidth=2'


def test_a_transfer_is_shown_once_and_a_group_has_its_time_at_its_first_operator() -> None:
    """Operator 0 is read by 1 to 3, of which 2 and 3 are on the other device, in a group."""
    nodes = tuple(Node(name, "Add", (1.0, 2.0)) for name in "abcd")
    tensor = ProblemTensor("t", 0, (1, 2, 3), ((0.0, 4.0), (5.0, 0.0)))
    problem = Problem(("cpu", "npu"), ("m", "n"), (0, 1), nodes, (tensor,), (Group((2, 3), 1, 3.0),), "once")
    lines = [line.strip() for line in placement_dot('a "graph"', problem, (0, 0, 1, 1)).splitlines()]
    assert [line for line in lines if "->" in line] == [
        "n0 -> n1;",
        f'n0 -> n2 [label="4000 ms", {COLOUR}];',
        f"n0 -> n3 [{COLOUR}];",
    ]
    labels = [line.partition('"')[2].partition('", ')[0] for line in lines if line.startswith("n") and "Add" in line]
    assert labels == [r"a\nAdd\n1000 ms", r"b\nAdd\n1000 ms", r"c\nAdd\n3000 ms, group of 2", r"d\nAdd\nwith c"]
    assert lines[1].startswith(r'label="a \"graph\"";')
