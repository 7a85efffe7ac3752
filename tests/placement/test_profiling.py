"""Algorithm 1: Figure 5 step by step, whole profiles of small graphs by hand, and what holds of every profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, product

from hypothesis import given, settings

from benchmarks.dcg.tables import edge_run_bound
from shisha_rt.placement.dcg import Dcg, TensorKind, Vertex, device_mapped_graph
from shisha_rt.placement.paths import Paths
from shisha_rt.placement.problem import Node, Problem, ProblemTensor
from shisha_rt.placement.profiling import MAX_LISTS, by_priority, profile_runs, visits
from tests.placement.figure_5 import BOTH, ONLY_0, X, figure_5
from tests.placement.listed_dcg import edges_of
from tests.placement.strategies import dcgs

ONLY_1 = (math.inf, 1.0)


class TestFigure5:
    def test_step_by_step(self) -> None:
        paths, steps = Paths(), {}
        for vertex, lists in visits(figure_5(), known={4}, paths=paths):
            name = f"{'ABCDEF'[vertex.operator]}{vertex.device}"
            steps[name] = [(f"{crossed:05b}"[::-1], paths.devices(path)) for crossed, path in lists]
            if lists[0].crossed == 0b11111:
                break
        assert steps == {
            "A0": [("00001", (0,))],
            "B1": [("10001", (0, 1))],
            "B0": [("00001", (0, 0))],
            "C0": [("11001", (0, 1, 0))],  # from B1: it includes the one from B0
            "D1": [("11101", (0, 1, 0, 1))],
            "D0": [("11001", (0, 1, 0, 0))],
            "E1": [("11101", (0, 1, 0, 0, 1))],  # from D0, as from D1, for lists of equal length
            "E0": [("11111", (0, 1, 0, 1, 0))],  # from D1: full
        }
        assert list(steps) == ["A0", "B1", "B0", "C0", "D1", "D0", "E1", "E0"]

    def test_the_whole_profile(self) -> None:
        """The figure takes e4 alone as known; the node runs of these six operators show all but e3."""
        profile = profile_runs(dcg := figure_5())
        assert [(run.assignment, run.newly_measured) for run in profile.node_runs] == [
            ((0, 0, 0, 0, 0, 0), ()),
            ((0, 1, 0, 1, 1, 0), (0, 1, 2, 4)),
        ]
        assert [(run.assignment[3:5], run.newly_measured) for run in profile.edge_runs] == [((1, 0), (3,))]
        assert (profile.left_after_node_runs, edge_run_bound(dcg, profile)) == (1, 1)


def graph_of(
    costs_s: Sequence[tuple[float, ...]],
    edges: Sequence[tuple[int, tuple[int, ...]]],
    kinds: Sequence[TensorKind] | None = None,
) -> Dcg:
    """A memory for each device; by default all tensors are of one kind."""
    devices = tuple(map(str, range(len(costs_s[0]))))
    transfer_s = tuple(tuple(float(a != b) for b in devices) for a in devices)
    problem = Problem(
        devices=devices,
        memories=devices,
        memory_of=tuple(range(len(devices))),
        nodes=tuple(Node(f"n{i}", "", row) for i, row in enumerate(costs_s)),
        tensors=tuple(ProblemTensor(f"t{i}", *ends, transfer_s) for i, ends in enumerate(edges)),
    )
    return device_mapped_graph(problem, kinds or [X] * len(edges))


class TestRuns:
    def test_priority_falls_back_to_device_0_and_then_to_any(self) -> None:
        inf = math.inf
        dcg = graph_of([(1, 1, 1), (1, 1, inf), (inf, 1, inf)], [])
        assert [by_priority(dcg, device) for device in range(3)] == [(0, 0, 1), (1, 1, 1), (2, 0, 1)]

    def test_one_path_shows_both_ways(self) -> None:
        profile = profile_runs(dcg := graph_of([BOTH] * 3, [(0, (1,)), (1, (2,))]))
        assert [run.newly_measured for run in profile.edge_runs] == [(0, 1)]
        assert edge_run_bound(dcg, profile) == 1

    def test_one_data_edge_shows_one_way_a_run(self) -> None:
        profile = profile_runs(dcg := graph_of([(1, 1, 1)] * 2, [(0, (1,))]))
        assert profile.left_after_node_runs == edge_run_bound(dcg, profile) == len(profile.edge_runs) == 6

    def test_one_producer_is_one_source_a_run(self) -> None:
        profile = profile_runs(dcg := graph_of([BOTH] * 3, [(0, (1, 2))]))
        assert edge_run_bound(dcg, profile) == len(profile.edge_runs) == 2

    def test_one_consumer_is_one_target_a_run(self) -> None:
        profile = profile_runs(dcg := graph_of([BOTH] * 3, [(0, (2,)), (1, (2,))]))
        assert edge_run_bound(dcg, profile) == len(profile.edge_runs) == 2

    def test_a_far_edge_whose_source_every_kept_path_has_lost(self) -> None:
        # n1 reads nothing and has one device, so all paths through it are alike; from then on n0 is on device 0.
        dcg = graph_of([BOTH, ONLY_0, BOTH], [(0, (2,))])
        vertex, lists = list(visits(dcg, (), paths := Paths()))[-1]
        assert vertex == Vertex(3, -1)
        assert [(crossed, paths.devices(path)) for crossed, path in lists] == [(0b01, (0, 0, 1))]
        profile = profile_runs(dcg)
        assert profile.left_after_node_runs == 2
        assert [(run.assignment, run.newly_measured) for run in profile.edge_runs] == [
            ((0, 0, 1), (0,)),
            ((1, 0, 0), (1,)),
        ]

    def test_lost_sources_are_packed_into_one_run_where_they_agree(self) -> None:
        kinds = [X, TensorKind("FP32", 8)]
        profile = profile_runs(graph_of([BOTH, BOTH, ONLY_0, BOTH], [(0, (3,)), (1, (3,))], kinds))
        assert [run.assignment for run in profile.edge_runs] == [(0, 0, 0, 1), (1, 1, 0, 0)]

    def test_and_into_several_where_they_do_not(self) -> None:
        profile = profile_runs(graph_of([(1, 1, 1), (1, math.inf, math.inf), (1, 1, 1)], [(0, (2,))]))
        # Two walks find n0 on device 0, with n2 on 2 and on 1; then one source and one target is all that a run shows.
        assert [run.newly_measured for run in profile.edge_runs] == [(1,), (0,), (2,), (3,), (4,), (5,)]

    def test_nothing_left_needs_no_edge_run(self) -> None:
        profile = profile_runs(dcg := graph_of([ONLY_0, BOTH, ONLY_0], [(0, (1,)), (1, (2,))]))
        assert [run.newly_measured for run in profile.node_runs] == [(), (0, 1)]
        assert (profile.edge_runs, edge_run_bound(dcg, profile)) == ((), 0)

    def test_what_two_devices_cannot_run_in_common(self) -> None:
        profile = profile_runs(graph_of([ONLY_0, ONLY_1], [(0, (1,))]))
        assert [run.newly_measured for run in profile.node_runs] == [(0,), ()]


def fewest_edge_runs(dcg: Dcg, left: set[int]) -> int:
    """By brute force over sets of assignments."""
    shown = {frozenset(dcg.crossed(assignment) & left) for assignment in product(*dcg.capable)}
    maximal = [crossed for crossed in shown if not any(crossed < other for other in shown)]
    return next(n for n in range(len(left) + 1) if any(left <= set().union(*some) for some in combinations(maximal, n)))


@settings(deadline=None)
@given(dcg=dcgs(max_nodes=5))
def test_what_holds_of_every_profile(dcg: Dcg) -> None:
    profile = profile_runs(dcg)
    runs = [*profile.node_runs, *profile.edge_runs]
    for run in runs:
        assert all(device in devices for device, devices in zip(run.assignment, dcg.capable, strict=True))
        assert dcg.crossed(run.assignment) >= set(run.newly_measured)
    pairs = {(operator, device) for operator, devices in enumerate(dcg.capable) for device in devices}
    assert {pair for run in profile.node_runs for pair in enumerate(run.assignment)} == pairs
    measured = [number for run in runs for number in run.newly_measured]
    assert sorted(measured) == list(range(len(dcg.da_edges)))
    assert all(run.newly_measured for run in profile.edge_runs)
    left = {number for run in profile.edge_runs for number in run.newly_measured}
    assert profile.left_after_node_runs == len(left)
    assert edge_run_bound(dcg, profile) <= fewest_edge_runs(dcg, left) <= len(profile.edge_runs)


@settings(deadline=None)
@given(dcg=dcgs())
def test_lists_are_what_their_paths_cross(dcg: Dcg) -> None:
    paths = Paths()
    for vertex, lists in visits(dcg, (), paths):
        for crossed, path in lists:
            devices = paths.devices(path)
            assert vertex == dcg.end or (vertex.operator, vertex.device) == (len(devices) - 1, devices[-1])
            edges = [
                edge for edge in edges_of(dcg) if edge.target.operator < len(devices) and edge.source.operator >= 0
            ]
            on_path = {
                edge.da_edge
                for edge in edges
                if all(devices[end.operator] == end.device for end in (edge.source, edge.target))
            }
            assert {number for number in range(len(dcg.da_edges)) if crossed >> number & 1} == on_path - {None}
        sets = [crossed for crossed, _ in lists]
        assert len(sets) <= MAX_LISTS
        assert all(some & ~other and other & ~some for some, other in combinations(sets, 2))


def test_lists_are_capped() -> None:
    """Twelve pairs, each with a kind of its own that goes either way: 2^12 lists, none included in another."""
    kinds = [TensorKind("FP32", size) for size in range(12)]
    dcg = graph_of([BOTH] * 24, [(i, (i + 1,)) for i in range(0, 24, 2)], kinds)
    sizes = [len(lists) for _, lists in visits(dcg, (), Paths())]
    assert max(sizes) == MAX_LISTS
    assert [len(run.newly_measured) for run in profile_runs(dcg).edge_runs] == [12, 12]


def test_a_large_graph() -> None:
    """Only the last of 20,000 operators shows a second kind, so the walk goes all the way."""
    count = 20_000
    kinds = [X] * (count - 2) + [TensorKind("INT64", 8)]
    profile = profile_runs(dcg := graph_of([BOTH] * count, [(i, (i + 1,)) for i in range(count - 1)], kinds))
    assert [len(run.newly_measured) for run in profile.edge_runs] == [3, 1]
    assert edge_run_bound(dcg, profile) == 2
