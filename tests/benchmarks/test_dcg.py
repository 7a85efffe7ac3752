"""How the DCG papers' tables and figures are counted, on graphs small enough to count by hand; and BERT's counts."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.dcg.board import Case, cases
from benchmarks.dcg.figures import operand_rows, partition_rows, placed, speedup_rows, subgraphs, window
from benchmarks.dcg.statements import partition_statements, stated, subgraph_statement
from benchmarks.dcg.tables import GraphCounts, Operator, cleaned, exported, graph_counts, transformer_like
from benchmarks.report.page import KINDS
from benchmarks.report.results import RESULTS, read_csv
from shisha_rt.papers.dcg.brute import assignment_at
from shisha_rt.placement.check import cost
from shisha_rt.placement.dcg import device_mapped_graph
from shisha_rt.placement.exact import exact_placement

GPT2_PARTITION = [
    {"network": "GPT-2", "operator": op, "number": n, "(PIM, CPU_P, CPU_S)": "PIM", "ALS": als, "optimum": "PIM"}
    for op, n, als in (("Gemm", 3, "PIM"), ("Gemm", 1, "CPU_P"), ("(p, r) + (r)", 2, "CPU_S"))
]


@pytest.fixture(scope="module")
def bert() -> Case:
    (case,) = cases(["bert"], [16])
    return case


def test_a_tensor_counts_once_for_each_pair_of_devices() -> None:
    operators = [
        Operator(["input"], ["a"], [0, 1]),
        Operator(["a"], ["b"], [0, 1]),
        Operator(["a", "b"], ["c"], [0]),
    ]
    # a goes from 0 to 1 and back, though two read it; b from 1 to 0.
    assert graph_counts(operators) == GraphCounts(nodes=3, edges=3, dcg_nodes=5, transfer_edges=3)


def test_bert_has_the_papers_counts(bert: Case) -> None:
    assert graph_counts(cleaned(bert)) == GraphCounts(222, 262, 469, 686)
    assert graph_counts(cleaned(bert, (0, 2))).transfer_edges == 221
    assert graph_counts(exported(bert)).nodes == 227
    dcg = device_mapped_graph(bert.problem, between="devices")
    assert (len(dcg.capable), sum(map(len, dcg.capable))) == graph_counts(cleaned(bert))[:3:2]


def test_bert_has_the_operands_of_table_2(bert: Case) -> None:
    rows = operand_rows([bert] * 3)
    assert all(row["BERT, ours"] == row["BERT, paper"] for row in rows)


def test_schemes_are_held_against_the_serial_one_and_the_optimum(bert: Case) -> None:
    rows = {str(row["scheme"]): row for row in speedup_rows(placed([bert]))}
    assert rows["CPU_S only"]["over CPU_S"] == rows["ALS"]["ALS over it"] == rows["optimum"]["optimum over it"] == 1
    assert all(float(str(row["optimum over it"])) >= 1 for row in rows.values())


def test_matmul_stay_on_the_pim(bert: Case) -> None:
    by_what = {
        statement.what: statement for statement in partition_statements([*partition_rows([bert]), *GPT2_PARTITION])
    }
    assert by_what["BERT and RoBERTa: of 24 MatMul stay on the PIM"].ours["ours"] == "100%"
    assert by_what["GPT-2: of 4 Gemm leave the PIM"].ours["ours"] == "25%"


def test_a_window_keeps_what_is_inside() -> None:
    problem = transformer_like(random.Random(0), 36)
    inside = window(problem, 7, 6)  # from the first residual on, into the next block
    assert [node.op for node in inside.nodes] == ["add", "wide", "gelu", "narrow", "add", "query"]
    assert [(t.producer, t.consumers) for t in inside.tensors] == [
        (0, (1, 4)),
        (1, (2,)),
        (2, (3,)),
        (3, (4,)),
        (4, (5,)),
    ]


def test_subgraphs_know_every_assignment(bert: Case) -> None:
    subgraph = next(subgraphs(bert))
    assert subgraph.over_least(subgraph.exact) == pytest.approx(1)
    assert subgraph.over_least(subgraph.als) >= 1 - 1e-12
    least = assignment_at(subgraph.problem, int(subgraph.cost_s.argmin()))
    assert cost(subgraph.problem, least).total_s == pytest.approx(float(subgraph.cost_s.min()))


def test_subgraphs_that_are_alike_count_once(bert: Case) -> None:
    first, second = (
        next(index for index, node in enumerate(bert.problem.nodes) if node.name.startswith(f"layer{layer}/"))
        for layer in (0, 1)
    )
    firsts = {subgraph.first for subgraph in subgraphs(bert)}
    assert first in firsts
    assert second not in firsts


def test_graphs_that_scale_are_transformer_like() -> None:
    problem = transformer_like(random.Random(0), 24)
    last_of_first_block = problem.tensors[11]
    assert [problem.nodes[consumer].name for consumer in last_of_first_block.consumers] == [
        "query_1",
        "key_1",
        "value_1",
        "add_1",
    ]
    assert all(
        math.isinf(node.cost_s[2]) == (node.op in ("scores", "softmax", "context", "gelu")) for node in problem.nodes
    )
    assert exact_placement(problem).statistics["width"] <= 3


@pytest.mark.parametrize(("ours", "repeats"), [([2.0, 1.04], "yes"), ([2.2, 1.0], "nearly"), ([2.0, 0.8], "no")])
def test_a_statement_repeats_as_far_as_its_worst_figure(ours: list[float], repeats: str) -> None:
    row = stated("left, roberta", [2.0, 1.0], ours, None, str, where="here").row()
    assert row["repeats"] == repeats
    assert bool(row["likely reason"]) == (repeats != "yes")


def test_the_optimum_is_found_in_all_subgraphs_but_those_missed() -> None:
    rows = [{"different subgraphs": n, "ALS not the optimum": 2, "exact not the optimum": 0} for n in (10, 20)]
    statement = subgraph_statement(rows)
    assert (statement.paper, *statement.ours.values()) == ("30", "26", "30")


def test_figures_that_the_descriptions_know_are_marked() -> None:
    kept = read_csv(RESULTS / "dcg_statements.csv")
    figures = {kind: {row["paper's"] for row in kept if row["kind"] == kind} for kind in KINDS}
    assert figures["fitted"] == {"Figure 9", "Figure 11", "Table 3"}
    assert figures["by construction"] == {"Figure 2(b)", "Figure 8(a)", "Figure 8(b)", "Table 1", "Table 3"}
    assert figures["predicted"] == {"Figure 10", "Figure 12", "Figure 13", "Table 1", "Table 3"}
