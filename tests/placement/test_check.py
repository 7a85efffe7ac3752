"""What assignments cost, added up by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shisha_rt.placement.check import Cost, cost, groups_in_use
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor

INF = math.inf

# Devices 0 and 1 share memory 0, device 2 has memory 1, device 3 memory 2. Node 0 is read by 1, 2 and 3; 3 by 4.
MOVES = ((0.0, 3.0, 4.0), (0.0, 30.0, 4.0), (5.0, 0.0, 6.0), (5.0, 6.0, 0.0))
PROBLEM = Problem(
    devices=("a", "b", "c", "d"),
    memories=("ab", "c", "d"),
    memory_of=(0, 0, 1, 2),
    nodes=tuple(Node(f"n{i}", "", (1.0, 2.0, 0.5, 0.25)) for i in range(4)) + (Node("n4", "", (1.0, INF, INF, INF)),),
    tensors=(
        ProblemTensor("t0", 0, (1, 2, 3), MOVES),
        ProblemTensor("t3", 3, (4,), MOVES),
        ProblemTensor("out", 4, (), MOVES),
    ),
)
CHAIN = Problem(
    devices=("cpu", "npu"),
    memories=("dram", "sram"),
    memory_of=(0, 1),
    nodes=tuple(Node(f"n{i}", "", (4.0, 3.0)) for i in range(4)),
    tensors=tuple(ProblemTensor(f"t{i}", i, (i + 1,), ((0.0, 1.0), (2.0, 0.0))) for i in range(3)),
)


class TestTransfers:
    @pytest.mark.parametrize(
        ("assignment", "once_s", "per_edge_s"),
        [
            ((0, 0, 0, 0, 0), 0, 0),
            ((0, 1, 1, 0, 0), 0, 0),  # within a memory
            ((0, 2, 2, 0, 0), 3, 6),  # two readers in one memory
            ((1, 2, 2, 0, 0), 30, 60),  # what a transfer costs depends on the device, not on its memory alone
            ((0, 2, 3, 0, 0), 3 + 4, 3 + 4),
            ((2, 0, 1, 2, 0), 5 + 5, 5 + 5 + 5),  # two devices of one memory
            ((0, 2, 2, 2, 0), 3 + 5, 9 + 5),
            ((0, 0, 0, 3, 0), 4 + 5, 4 + 5),
        ],
    )
    def test_once_for_each_memory_or_each_reader(
        self, assignment: tuple[int, ...], once_s: float, per_edge_s: float
    ) -> None:
        assert cost(PROBLEM, assignment).transfer_s == once_s
        assert cost(replace(PROBLEM, transfer_counting="per_edge"), assignment).transfer_s == per_edge_s

    def test_the_total_has_the_nodes_too(self) -> None:
        total = cost(PROBLEM, (0, 1, 2, 3, 0))
        assert total == Cost(node_s=1 + 2 + 0.5 + 0.25 + 1, transfer_s=3 + 4 + 5)
        assert total.total_s == 16.75

    def test_inf_where_a_device_cannot_run_a_node(self) -> None:
        assert cost(PROBLEM, (0, 0, 0, 0, 1)).total_s == INF

    @pytest.mark.parametrize("assignment", [(), (0, 0, 0, 0), (0,) * 6])
    def test_one_device_for_each_node(self, assignment: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="devices for 5 nodes"):
            cost(PROBLEM, assignment)


class TestGroups:
    ALL_ON_NPU = (1, 1, 1, 1)

    @pytest.mark.parametrize(
        ("groups", "node_s"),
        [
            ([], 12),
            ([((0, 1), 1, 5)], 11),
            ([((0, 1), 1, 6)], 12),
            ([((0, 1), 1, 7)], 12),  # dearer than its members: not used
            ([((0, 1), 0, 1)], 12),  # of the other device
            ([((2,), 1, 1)], 10),
            ([((0, 1, 2, 3), 1, 0)], 0),
            ([((0, 1), 1, 5), ((2, 3), 1, 4)], 9),
            ([((0, 1), 1, 3), ((1, 2), 1, 1), ((2, 3), 1, 3)], 6),  # both ends save 3 + 3, the middle 5
            ([((0, 1), 1, 4), ((1, 2), 1, 1), ((2, 3), 1, 4)], 7),  # 2 + 2 against 5
            ([((0, 1, 2), 1, 4), ((0, 1), 1, 3), ((2, 3), 1, 3), ((3,), 1, 0.5)], 4.5),  # 5 + 2.5, 3 + 3, 3 + 2.5
        ],
    )
    def test_the_disjoint_ones_that_save_most(
        self, groups: list[tuple[tuple[int, ...], int, float]], node_s: float
    ) -> None:
        problem = replace(CHAIN, groups=tuple(Group(*group) for group in groups))
        assert cost(problem, self.ALL_ON_NPU) == Cost(node_s, 0.0)
        assert cost(replace(problem, groups=problem.groups[::-1]), self.ALL_ON_NPU) == Cost(node_s, 0.0)

    def test_not_unless_all_members_are_on_its_device(self) -> None:
        problem = replace(CHAIN, groups=(Group((0, 1, 2), 1, 0.0),))
        assert cost(problem, (1, 1, 0, 1)) == Cost(3 + 3 + 4 + 3, 2 + 1)
        assert cost(problem, (1, 1, 1, 0)) == Cost(0 + 4, 2)

    @pytest.mark.parametrize(
        ("groups", "node_s"),
        [
            ([], INF),
            ([((0, 1), 1, 5)], 5 + 3 + 3),
            ([((0, 1), 1, 50)], 50 + 3 + 3),  # dear, but there is no other way
            ([((0, 1), 1, 50), ((0,), 1, 9)], 9 + 3 + 3 + 3),
            ([((0, 1), 1, 7), ((1, 2), 1, 0)], 7 + 3 + 3),  # what saves more would leave the first node alone
            ([((0, 1), 0, 0)], INF),  # of the other device
        ],
    )
    def test_a_node_that_cannot_run_by_itself_is_there_in_a_group(
        self, groups: list[tuple[tuple[int, ...], int, float]], node_s: float
    ) -> None:
        nodes = (Node("n0", "", (1.0, INF)), *CHAIN.nodes[1:])
        problem = replace(CHAIN, nodes=nodes, groups=tuple(Group(*group) for group in groups))
        assert cost(problem, self.ALL_ON_NPU).node_s == node_s
        assert cost(replace(problem, groups=problem.groups[::-1]), self.ALL_ON_NPU).node_s == node_s

    def test_two_that_need_the_same_neighbour_cannot_both_be_there(self) -> None:
        nodes = (Node("n0", "", (1.0, INF)), CHAIN.nodes[1], Node("n2", "", (1.0, INF)), CHAIN.nodes[3])
        problem = replace(CHAIN, nodes=nodes, groups=(Group((0, 1), 1, 1.0), Group((1, 2), 1, 1.0)))
        assert cost(problem, (1, 1, 1, 1)).total_s == INF
        assert cost(problem, (1, 1, 0, 0)).node_s == 1 + 4 + 1
        assert groups_in_use(problem, (1, 1, 0, 0)) == problem.groups[:1]
