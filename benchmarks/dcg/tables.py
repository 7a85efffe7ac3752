"""Tables 1 and 3: sizes of the device-mapped graphs, and times of the algorithms; and how these grow with the graph.

The papers do not say which edges E_d counts. Their numbers are met exactly if it counts edges between two devices, each
tensor once for a pair of devices however many operators read it. They use GPT-2 as exported, with the operators that
compute shapes; here these are folded before placement, so the exported graph is counted, too. Times are medians of CPU
seconds, as the algorithms use one thread and the host may be busy.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Final, NamedTuple

import onnx

from benchmarks.dcg.board import TITLES, Case
from benchmarks.report.page import Kind
from benchmarks.report.results import Row
from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.zoo import TOPOLOGIES
from shisha_rt.placement.als import als
from shisha_rt.placement.build import build_problem, tensor_kinds
from shisha_rt.placement.dcg import Between, Dcg, data_edges, device_mapped_graph
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.problem import Node, Problem, ProblemTensor
from shisha_rt.placement.profiling import ProfileRuns, profile_runs
from shisha_rt.placement.solution import PlacementSolution

Solver = Callable[[Problem], PlacementSolution]


def median_s(repeats: int, call: Callable[[], object]) -> float:
    times_s = []
    for _ in range(repeats):
        began_s = time.process_time()
        call()
        times_s.append(time.process_time() - began_s)
    return median(times_s)


def solve_time_s(repeats: int, solver: Solver, problem: Problem) -> float:
    return median_s(repeats, lambda: solver(replace(problem)))  # a copy: its cached properties are part of the work


# --- tables 1 and 3 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quantity:
    """A row of the papers' tables: `paper` and `ours`, by network. `note`: how it is counted, or why it differs.

    `kind`: the papers do not say which edges E_d counts, so our rule was inferred from their numbers; V_d follows from
    the operators that CPU_P can run, which were fitted to it.
    """

    where: str
    name: str
    paper: tuple[object, ...]
    ours: tuple[object, ...]
    note: str = ""

    @property
    def kind(self) -> Kind:
        return _KINDS.get(self.name.partition(",")[0], "predicted")

    def row(self) -> Row:
        cells = zip(TITLES.values(), self.paper, self.ours, strict=True)
        columns = {f"{title}, {who}": value for title, *both in cells for who, value in zip(_WHO, both, strict=True)}
        return {"table": self.where, "quantity": self.name, **columns, "note": self.note}


_KINDS: Final[Mapping[str, Kind]] = {"E_d": "by construction", "V_d": "fitted"}
_WHO: Final = ("paper", "ours")
_NONE: Final = (None, None, None)
_SOLVERS: Final[Sequence[tuple[Solver, str, str]]] = (
    (als, "ALS", "aim: GPT-2 under 20"),
    (exact_placement, "exact", "aim: GPT-2 under 100"),
)
_SIZES: Final = (
    ("CG nodes", (222, 616, 1934), "{}"),
    ("CG edges", (262, 725, 2424), "{}; RoBERTa: 765 in the text"),
    ("V_d", (469, 1317, 2593), "without start and end; {}"),
    ("E_d", (686, 1951, 1723), "{}"),
)
"""For each field of `GraphCounts` the papers' name, figures, and a note, in which {} stands for why GPT-2 differs."""
_UNSAID: Final = "which shape operators of GPT-2 the papers run on CPU_P is not said"


class Operator(NamedTuple):
    """`capable`: the devices that can run it."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    capable: Sequence[int]


class GraphCounts(NamedTuple):
    """CG and DCG, start and end left out. `transfer_edges`: (tensor, source, target), source and target devices."""

    nodes: int
    edges: int
    dcg_nodes: int
    transfer_edges: int


def graph_counts(operators: Iterable[Operator]) -> GraphCounts:
    operators = list(operators)
    made = {tensor: operator.capable for operator in operators for tensor in operator.outputs}
    read = [(tensor, operator.capable) for operator in operators for tensor in operator.inputs if tensor in made]
    moved = {(tensor, *ends) for tensor, capable in read for ends in product(made[tensor], capable) if len({*ends}) > 1}
    return GraphCounts(len(operators), len(read), sum(len(operator.capable) for operator in operators), len(moved))


def edge_counts(dcg: Dcg) -> tuple[int, int]:
    """All edges, with those of the start and the end node; and those that are transfers, one for each reader."""
    pairs = Counter((dcg.capable[producer], dcg.capable[consumer]) for _, producer, consumer in data_edges(dcg.problem))
    ends = zip(dcg.capable, dcg.problem.makers, dcg.problem.readers, strict=True)
    outer = sum(len(devices) * ((not makers) + (not readers)) for devices, makers, readers in ends)
    inner = sum(count * len(sources) * len(targets) for (sources, targets), count in pairs.items())
    moved = sum(count * sum(dcg.moves[s][t] for s, t in product(*between)) for between, count in pairs.items())
    return inner + outer, moved


def edge_run_bound(dcg: Dcg, runs: ProfileRuns) -> int:
    """A lower bound of the number of edge runs that are necessary after the node runs.

    In one run a data edge crosses one DA edge, a producer is on one source and a consumer on one target. So of the DA
    edges of one kind, a run crosses at most as many as that kind has data edges; their sources are at most as many as
    its producers, their targets at most as many as its consumers.
    """
    left = {number for run in runs.edge_runs for number in run.newly_measured}
    wanted: dict[int, set[int]] = {}
    shown_on: dict[int, set[tuple[int, int]]] = {}
    for tensor, producer, consumer in data_edges(dcg.problem):
        kind = dcg.kind_of[tensor]
        numbers = {
            number
            for source, target in product(dcg.capable[producer], dcg.capable[consumer])
            if (number := dcg.number[kind][source][target]) in left and number is not None
        }
        if numbers:
            wanted.setdefault(kind, set()).update(numbers)
            shown_on.setdefault(kind, set()).add((producer, consumer))
    bound = 0
    for kind, numbers in wanted.items():
        producers, consumers = map(set, zip(*shown_on[kind], strict=True))
        sources = {dcg.da_edges[number].source for number in numbers}
        targets = {dcg.da_edges[number].target for number in numbers}
        for needs, has in ((numbers, shown_on[kind]), (sources, producers), (targets, consumers)):
            bound = max(bound, -(-len(needs) // len(has)))
    return bound


def cleaned(case: Case, devices: Sequence[int] = (0, 1, 2)) -> list[Operator]:
    """The graph that is placed: the operators that run for every frame."""
    return [
        Operator(operator.inputs, operator.outputs, [device for device in node.capable if device in devices])
        for operator, node in zip(case.graph.operators, case.problem.nodes, strict=True)
    ]


def exported(case: Case) -> list[Operator]:
    """The exported graph without weights. Operators that cleaning folds compute shapes, which the PIM cannot run."""
    graph = TOPOLOGIES[case.network]().graph
    constants = {tensor.name for tensor in graph.initializer}
    capable = {node.name: node.capable for node in case.problem.nodes}
    return [
        Operator(node.input, node.output, capable.get(node.name) or _by_type(node, case.devices))
        for node in graph.node
        if not (node.op_type == "ConstantOfShape" and node.input[0] in constants)
    ]


def _by_type(node: onnx.NodeProto, devices: Sequence[Device]) -> list[int]:
    return [
        index
        for index, device in enumerate(devices)
        if not device.datatypes and any(not family.ops or node.op_type in family.ops for family in device.families)
    ]


def quantities(cases: Sequence[Case], repeats: int) -> list[Quantity]:
    """One case for each network, all at one p; times are medians of `repeats`."""
    return [*_counted(cases), *_timed(cases, repeats)]


def _counted(cases: Sequence[Case]) -> list[Quantity]:
    counts = [graph_counts(cleaned(case)) for case in cases]
    exports = [graph_counts(exported(case)) for case in cases]
    sizes = list(zip(_SIZES, zip(*counts, strict=True), zip(*exports, strict=True), strict=True))
    dcgs = [_dcg(case.graph, case.problem, "devices") for case in cases]
    edges, transfers = zip(*map(edge_counts, dcgs), strict=True)
    runs = [profile_runs(dcg) for dcg in dcgs]
    bounds = ", ".join(str(edge_run_bound(dcg, run)) for dcg, run in zip(dcgs, runs, strict=True))
    two = [_on_two(case) for case in cases]
    two_da = [len(_dcg(case.graph, problem, "devices").da_edges) for case, problem in zip(cases, two, strict=True)]
    in_memories = [len(_dcg(case.graph, case.problem, "memories").da_edges) for case in cases]
    return [
        Quantity(
            "1",
            "E_d, CPU_S and PIM",
            (221, 628, 527),
            tuple(graph_counts(cleaned(case, (0, 2))).transfer_edges for case in cases),
            "a tensor once for each pair of devices, however many read it",
        ),
        Quantity("1", "DA edges, CPU_S and PIM", (8, 8, 7), tuple(two_da)),
        *(
            Quantity("3", name, paper, figures, note.format(f"GPT-2: theirs is the whole export, {whole[-1]:,} here"))
            for (name, paper, note), figures, whole in sizes
        ),
        *(
            Quantity("", f"{name}, export", paper, whole, _UNSAID if name == "V_d" else "")
            for (name, paper, _), _, whole in sizes
        ),
        Quantity("", "E_d, once for each reader", _NONE, transfers),
        Quantity("", "all edges, start and end too", _NONE, edges),
        Quantity(
            "3",
            "DA edges",
            (20, 20, 24),
            tuple(len(dcg.da_edges) for dcg in dcgs),
            "BERT, RoBERTa: 20 at p = 8 and 64, where attention scores are as large as other tensors; "
            "GPT-2's shape operators move whole numbers too",
        ),
        Quantity(
            "", "DA edges between memories", _NONE, tuple(in_memories), "ours: CPU_S and CPU_P share one, nothing moves"
        ),
        Quantity("3", "DA edges left after node runs", (4, 4, 4), tuple(run.left_after_node_runs for run in runs)),
        Quantity(
            "3", "PIM capable", (108, 308, 245), tuple(sum(2 in devices for devices in dcg.capable) for dcg in dcgs)
        ),
        Quantity("3", "profile runs, nodes", (3, 3, 3), tuple(len(run.node_runs) for run in runs)),
        Quantity(
            "3",
            "profile runs, edges",
            (1, 1, 1),
            tuple(len(run.edge_runs) for run in runs),
            f"no fewer than {bounds}: proven",
        ),
    ]


def _timed(cases: Sequence[Case], repeats: int) -> list[Quantity]:
    dcgs = [_dcg(case.graph, case.problem, "devices") for case in cases]
    return [
        Quantity(
            "3",
            "graph traversal, ms",
            (40, 40, 70),
            tuple(1e3 * median_s(repeats, partial(profile_runs, dcg)) for dcg in dcgs),
            "another machine, and GPT-2 folded",
        ),
        *(
            Quantity(
                "3",
                f"partitioning, {name}, ms",
                (20, 70, 210),
                tuple(1e3 * solve_time_s(repeats, solver, case.problem) for case in cases),
                note,
            )
            for solver, name, note in _SOLVERS
        ),
    ]


def _on_two(case: Case) -> Problem:
    costs = described_costs(case.graph, (case.devices[0], case.devices[2]))
    return build_problem(case.graph, costs, "per_edge")


def _dcg(graph: Graph, problem: Problem, between: Between) -> Dcg:
    return device_mapped_graph(problem, tensor_kinds(graph, problem), between)


# --- how times grow ---------------------------------------------------------------------------------------------------


DRAWN: Final = "costs drawn at random"
DEVICES: Final = ("cpu_s", "cpu_p", "pim")

_BLOCK: Final = (
    ("query", (-1,)),
    ("key", (-1,)),
    ("value", (-1,)),
    ("scores", (0, 1)),
    ("softmax", (3,)),
    ("context", (2, 4)),
    ("output", (5,)),
    ("add", (6, -1)),
    ("wide", (7,)),
    ("gelu", (8,)),
    ("narrow", (9,)),
    ("add", (10, 7)),
)
"""The inputs of each operator of a block: numbers of operators in the block; -1: the last one of the block before."""
_NOT_ON_PIM: Final = frozenset({"scores", "softmax", "context", "gelu"})


def transformer_like(rng: random.Random, operators: int) -> Problem:
    """Blocks of attention and feed-forward with residuals, in sequence, until there are enough operators."""
    consumers: dict[int, list[int]] = {}
    nodes = []
    for index in range(operators):
        block, number = divmod(index, len(_BLOCK))
        op, reads = _BLOCK[number]
        costs_s = [rng.random(), rng.random(), math.inf if op in _NOT_ON_PIM else rng.random()]
        nodes.append(Node(f"{op}_{block}", op, tuple(costs_s)))
        for read in reads:
            producer = block * len(_BLOCK) + read
            if producer >= 0:
                consumers.setdefault(producer, []).append(index)
    tensors = []
    for producer, readers in consumers.items():
        to_pim_s, from_pim_s = rng.random(), rng.random()
        rows = ((0.0, to_pim_s), (0.0, to_pim_s), (from_pim_s, 0.0))
        tensors.append(ProblemTensor(f"tensor_{producer}", producer, tuple(readers), rows))
    return Problem(DEVICES, ("dram", "pim"), (0, 0, 1), tuple(nodes), tuple(tensors))


def scaling_rows(sizes: Sequence[int], repeats: int) -> Iterator[Row]:
    """Medians of CPU time; `us per operator` is constant if the time is linear."""
    for operators in sizes:
        print(f"dcg: {operators} operators ...", flush=True)
        problem = transformer_like(random.Random(operators), operators)
        row: dict[str, object] = {"operators": operators, "tensors": len(problem.tensors)}
        for solver, name, _ in _SOLVERS:
            taken_s = solve_time_s(repeats, solver, problem)
            row[f"{name} ms"] = 1e3 * taken_s
            row[f"{name} us per operator"] = 1e6 * taken_s / operators
        exact = exact_placement(problem)
        row |= {"exact ended as": str(exact.outcome), "width": int(exact.statistics["width"])}
        yield row | {"costs": DRAWN}
