"""The DCG of small graphs worked by hand, and its counts against its edges, one by one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from benchmarks.dcg.tables import edge_counts
from shisha_rt.placement.dcg import BETWEEN, Between, DaEdge, Dcg, TensorKind, Vertex, device_mapped_graph
from shisha_rt.placement.problem import Node, Problem, ProblemTensor
from tests.placement.figure_5 import ONLY_0, X, Y, Z, figure_5
from tests.placement.listed_dcg import START, edges_of
from tests.placement.strategies import dcgs


def shared_memory(kinds: list[TensorKind] | None, between: Between) -> Dcg:
    """Operators a -> b on cpu_s, cpu_p (one memory) and pim; b cannot run on cpu_p."""
    transfer_s = ((0.0, 2.0), (0.0, 3.0), (4.0, 0.0))
    nodes = Node("a", "Add", (1.0, 1.0, 1.0)), Node("b", "Add", (1.0, math.inf, 1.0))
    problem = Problem(
        ("cpu_s", "cpu_p", "pim"), ("dram", "pim"), (0, 0, 1), nodes, (ProblemTensor("t", 0, (1,), transfer_s),)
    )
    return device_mapped_graph(problem, kinds, between)


class TestFigure5:
    def test_da_edges_are_numbered_as_they_are_met(self) -> None:
        e0, e1, e2, e3, e4 = DaEdge(X, 0, 1), DaEdge(X, 1, 0), DaEdge(Y, 0, 1), DaEdge(Y, 1, 0), DaEdge(Z, 1, 0)
        assert figure_5().da_edges == (e0, e1, e2, e3, e4)

    def test_edges(self) -> None:
        listed = [
            f"{'SABCDEF.'[edge.source.operator + 1]}{max(edge.source.device, 0)}"
            f"{'SABCDEF.'[edge.target.operator + 1]}{max(edge.target.device, 0)}"
            f"{'' if edge.da_edge is None else f' e{edge.da_edge}'}"
            for edge in edges_of(figure_5())
        ]
        assert listed == [
            "S0A0",
            *("A0B0", "A0B1 e0", "B0C0", "B1C0 e1"),
            *("B0D0", "B0D1 e0", "B1D0 e1", "B1D1", "C0D0", "C0D1 e2"),
            *("D0E0", "D0E1 e2", "D1E0 e3", "D1E1", "E0F0", "E1F0 e4"),
            "F0.0",
        ]

    def test_counts(self) -> None:
        assert edge_counts(figure_5()) == (16 + 2, 8)

    def test_what_a_run_crosses(self) -> None:
        assert figure_5().crossed((0, 0, 0, 0, 0, 0)) == set()
        assert figure_5().crossed((0, 1, 0, 1, 1, 0)) == {0, 1, 2, 4}
        assert figure_5().crossed((0, 1, 0, 1, 0, 0)) == {0, 1, 2, 3}


class TestWhatIsDistinct:
    def test_within_a_memory_nothing_moves(self) -> None:
        dcg = shared_memory([X], "memories")
        assert dcg.da_edges == (DaEdge(X, 0, 2), DaEdge(X, 1, 2), DaEdge(X, 2, 0))
        assert edge_counts(dcg)[1] == 3

    def test_the_papers_count_every_pair_of_devices(self) -> None:
        dcg = shared_memory([X], "devices")
        assert dcg.da_edges == (DaEdge(X, 0, 2), DaEdge(X, 1, 0), DaEdge(X, 1, 2), DaEdge(X, 2, 0))
        assert edge_counts(dcg)[1] == 4

    def test_unknown_kinds_are_told_apart_by_their_costs(self) -> None:
        cheap, dear = ((0.0, 1.0), (1.0, 0.0)), ((0.0, 2.0), (1.0, 0.0))
        nodes = [Node(name, "Add", (1.0, 1.0)) for name in "abcd"]
        tensors = [ProblemTensor(f"t{i}", i, (i + 1,), costs_s) for i, costs_s in enumerate((cheap, dear, cheap))]
        dcg = device_mapped_graph(Problem(("p", "q"), ("p", "q"), (0, 1), tuple(nodes), tuple(tensors)))
        assert dcg.da_edges == tuple(DaEdge(kind, *ends) for kind in (cheap, dear) for ends in ((0, 1), (1, 0)))

    def test_datatype_and_size_both_count(self) -> None:
        assert len({TensorKind("FP32", 8), TensorKind("FP16", 8), TensorKind("FP32", 4)}) == 3

    def test_as_many_kinds_as_tensors(self) -> None:
        with pytest.raises(ValueError, match="2 kinds for 1 tensors"):
            shared_memory([X, X], "memories")


def test_operators_without_edges_hang_between_start_and_end() -> None:
    problem = Problem(("p", "q"), ("p", "q"), (0, 1), (Node("a", "", (1.0, 1.0)), Node("b", "", ONLY_0)), ())
    assert edge_counts(device_mapped_graph(problem)) == (6, 0)


@settings(deadline=None)
@given(dcg=dcgs())
def test_counts_agree_with_what_is_listed(dcg: Dcg) -> None:
    edges = list(edges_of(dcg))
    moving = [edge for edge in edges if edge.da_edge is not None]
    vertices = {Vertex(operator, device) for operator, devices in enumerate(dcg.capable) for device in devices}
    assert edge_counts(dcg) == (len(edges), len(moving))
    assert {edge.da_edge for edge in moving} == set(range(len(dcg.da_edges)))
    assert len(dcg.da_edges) == len(set(dcg.da_edges))
    assert {edge.source for edge in edges} | {edge.target for edge in edges} == vertices | {START, dcg.end}


@pytest.mark.parametrize("between", BETWEEN)
def test_a_large_graph(between: Between) -> None:
    nodes = tuple(Node(str(i), "", (1.0, 1.0, 1.0)) for i in range(100_000))
    transfer_s = ((0.0, 1.0), (0.0, 1.0), (1.0, 0.0))
    tensors = tuple(ProblemTensor(str(i), i, (i + 1,), transfer_s) for i in range(99_999))
    problem = Problem(("cpu_s", "cpu_p", "pim"), ("dram", "pim"), (0, 0, 1), nodes, tensors)
    dcg = device_mapped_graph(problem, [X, Y, Z] * 33_333, between)
    pairs = {"memories": 4, "devices": 6}[between]
    assert edge_counts(dcg) == (9 * 99_999 + 6, pairs * 99_999)
    assert len(dcg.da_edges) == pairs * 3
