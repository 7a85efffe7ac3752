"""Cells beside the paper's, and what it states beside what came out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.partitiontuner.board import Cell
from benchmarks.partitiontuner.cases import GIVEN, SUNK, Planned
from benchmarks.partitiontuner.statements import (
    Key,
    accuracy_statements,
    found_of,
    reader_statements,
    size_statements,
    statements,
)
from benchmarks.partitiontuner.tables import figure_6, of_form, past_the_paper, table_2, table_3, table_4, times
from benchmarks.report.page import OURS as AIM
from benchmarks.report.page import Statement
from shisha_rt.planner.strategies import SchemeName
from tests.benchmarks.partitiontuner.results import result

EXECUTED: Final = "executed, with this host's"


def test_a_cell_has_the_papers_time_and_ours_and_says_what_was_fitted() -> None:
    results = [
        result("squeezenet", "partitiontuner", 180, 181.23),
        result("squeezenet", "typeseq", 190),
        result("squeezenet", "forkjoin", 170, 171),
        result("zfnet512", "typeseq", 1700),
    ]
    zfnet, squeezenet = table_2(results)  # in the paper's order
    assert zfnet["TypeSeq"] == "1694.4 / 1700.0"
    assert squeezenet["TypeSeq"] == "195.5 / 190.0*"
    assert squeezenet["PartitionTuner"] == "185.6 / 180.0 / 181.2"
    assert squeezenet["ours"] == "170.0 / 171.0"
    assert squeezenet["OpSeq"] == ""
    row = times(results)[1]
    assert (row["paper's cell"], row["executed ms"], row["hand-overs ms"]) == ("fitted", None, None)


def test_counts_stand_beside_the_papers() -> None:
    results = [
        result("squeezenet", "typeseq", 190, partitions=17, on_npu=(24, 8)),
        result("squeezenet", "forkjoin", 170, partitions=29, on_npu=(12, 4)),
    ]
    (operators,), (partitions,) = table_3(results), table_4(results)
    assert operators["Conv on NPU, TypeSeq"] == "24 (24)"
    assert operators["Relu on NPU, TypeSeq"] == "8 (8)"
    assert operators["Conv on NPU, PartitionTuner"] == " (18)"
    assert operators["Conv on NPU, ours"] == "12"
    assert (partitions["TypeSeq"], partitions["OpSeq"], partitions["ours"]) == ("17 (25)", " (29)", "29")


def test_reductions_are_of_what_was_executed_where_both_were() -> None:
    results = [
        result("resnet50", "baseline", 3000, 3200),
        result("resnet50", "typeseq", 600, 800),
        result("resnet50", "opseq", 750),
    ]
    typeseq, opseq = figure_6(results)
    assert (typeseq["predicted %"], typeseq["executed %"]) == (80, 75)  # made up without hand-overs
    assert round(float(str(typeseq["paper %"])), 2) == 80.02
    assert (opseq["predicted %"], opseq["executed %"]) == (75, None)
    assert [*figure_6(results[1:]), *past_the_paper(results)] == []


def test_a_network_without_a_second_form_is_of_both() -> None:
    results = [
        result("resnet50", "typeseq", 1),
        result("squeezenet", "typeseq", 2),
        result("squeezenet", "typeseq", 3, form=SUNK),
    ]
    assert [planned.predicted_ms for planned in of_form(results, GIVEN)] == [1, 2]
    assert [planned.predicted_ms for planned in of_form(results, SUNK)] == [1, 3]


def _of(stated: list[Statement], what: str) -> Statement:
    (statement,) = (statement for statement in stated if what in statement.what)
    return statement


def _stated(results: list[Planned], *sets: dict[Key, Cell]) -> list[Statement]:
    return statements(found_of(results, SUNK, sets))


def test_gains_are_judged_by_the_board_alone() -> None:
    stated = _stated(
        [
            result("squeezenet", "typeseq", 100, 100, partitions=17),
            result("squeezenet", "partitiontuner", 95, 90, partitions=23),
            result("resnet50", "opseq", 100, partitions=97),
            result("resnet50", "partitiontuner", 91),
            result("resnet18", "opseq", 100, partitions=33),
            result("resnet18", "partitiontuner", 103),
        ]
    )
    squeezenet = _of(stated, "SqueezeNet: PartitionTuner is quicker than TypeSeq")
    assert (squeezenet.ours["ours"], squeezenet.ours[EXECUTED], squeezenet.repeats) == ("5.00%", "10.00%", "yes")
    resnet50 = _of(stated, "ResNet-50: PartitionTuner is quicker than OpSeq")
    assert (resnet50.ours["ours"], resnet50.ours[EXECUTED], resnet50.repeats) == ("9.00%", "", "nearly")
    assert _of(stated, "ResNet-18: PartitionTuner is quicker than OpSeq").repeats == "no"
    assert not [statement for statement in stated if "the CPU alone" in statement.what]  # it was not planned


def test_hand_overs_are_no_gain() -> None:
    """What makes OpSeq slower here is this host's way from stage to stage: it stands apart."""
    slow, quick = result("resnet18", "opseq", 100), result("resnet18", "partitiontuner", 100)
    findings = found_of([slow, quick], SUNK)
    slower = {key: replace(cell, ms=1.1 * cell.ms) for key, cell in findings.predicted.items() if "opseq" in key}
    with_handovers = replace(findings, predicted={**findings.predicted, **slower})
    statement = _of(statements(with_handovers), "ResNet-18: PartitionTuner is quicker than OpSeq")
    assert (statement.ours["ours"], statement.ours["with hand-overs as told"], statement.repeats) == (
        "0.00%",
        "9.09%",
        "no",
    )


def test_a_prediction_is_given_over_all_number_sets() -> None:
    results = [result("squeezenet", "typeseq", 100), result("squeezenet", "partitiontuner", 95, on_npu=(12, 0))]
    own: dict[Key, Cell] = {(planned.case.network, planned.scheme): planned.cell for planned in results}
    tuned: Key = ("squeezenet", "partitiontuner")
    others = [
        own | {tuned: replace(own[tuned], ms=ms, convs_on_npu=convs)}
        for ms, convs in ((100.0, 18), (90.0, 16), (97.0, 17))
    ]
    stated = _stated(results, *others)
    gain = _of(stated, "SqueezeNet: PartitionTuner is quicker than TypeSeq")
    assert (gain.ours["ours"], gain.ours["over all number sets"]) == ("5.00%", "0.00% to 10.00%")
    assert _of(stated, "Conv on the NPU, PartitionTuner").ours["over all number sets"] == "16 to 18"


def test_one_plan_under_two_names_has_the_times_of_each() -> None:
    own = [
        result("resnet50", "typeseq", 640, 652, partitions=33),
        result("resnet50", "partitiontuner", 640, 645, partitions=33),
    ]
    statement = _of(_stated(own), "PartitionTuner is quicker than TypeSeq")
    assert (statement.ours["ours"], statement.ours[EXECUTED], statement.repeats) == (
        "0 of 1 (not ResNet-50)",
        "1 of 1",
        "no",
    )
    own[1] = result("resnet50", "partitiontuner", 639, 645, partitions=34)
    assert _of(_stated(own), "PartitionTuner is quicker than TypeSeq").repeats == "yes"


def test_what_was_fitted_is_stated_apart() -> None:
    schemes: tuple[SchemeName, ...] = ("typeseq", "opseq")
    results = [result(network, scheme, 100) for network in ("resnet50", "resnet18") for scheme in schemes]
    predicted, fitted = (statement for statement in _stated(results) if statement.what.startswith("OpSeq is slower"))
    assert (predicted.kind, predicted.what) == ("predicted", "OpSeq is slower than TypeSeq: ResNet-18")
    assert (fitted.kind, fitted.what) == ("fitted", "OpSeq is slower than TypeSeq: ResNet-50")


def test_a_gain_between_times_that_were_fitted_is_no_prediction() -> None:
    """PartitionTuner makes TypeSeq's schedule of ResNet-50, whose time was fitted, as OpSeq's was."""
    own = [
        result("resnet50", "typeseq", 93),
        result("resnet50", "opseq", 100),
        result("resnet50", "partitiontuner", 93),
    ]
    assert _of(_stated(own), "PartitionTuner is quicker than OpSeq").kind == "fitted"
    own[2] = result("resnet50", "partitiontuner", 92)
    assert _of(_stated(own), "PartitionTuner is quicker than OpSeq").kind == "predicted"


def test_counts_that_a_rule_was_read_off_are_by_construction() -> None:
    results = [result(network, "typeseq", 100, on_npu=(24, 8)) for network in ("squeezenet", "resnet18")]
    stated = {(statement.what, statement.kind): statement for statement in _stated(results)}
    relus = "Relu on the NPU, TypeSeq"
    assert stated[f"{relus}: SqueezeNet", "by construction"].repeats == "yes"
    assert stated[f"{relus}: ResNet-18", "predicted"].repeats == "no"
    (convs,) = (statement for (what, _), statement in stated.items() if what.startswith("Conv on the NPU, TypeSeq"))
    assert (convs.kind, convs.ours["ours"], convs.repeats) == ("by construction", "24, 24 (1 of 2)", "partly")
    as_given = statements(found_of(results, GIVEN))
    assert _of(as_given, relus).kind == "predicted"  # no rule of ours is at work


def test_a_file_of_another_size_is_perhaps_another_network() -> None:
    (statement,) = size_statements({"squeezenet": 4.95, "inception_v1": 28.0})
    assert (statement.repeats, statement.kind) == ("partly", "measured")
    assert statement.ours["ours"] == "5, 28 (within 5%: all (not GoogLeNet))"
    assert list(size_statements({})) == []


def test_ours_is_held_against_partitiontuner() -> None:
    stated = _stated(
        [
            result("squeezenet", "partitiontuner", 180, 180, partitions=23),
            result("squeezenet", "forkjoin", 170, 181, partitions=29),
        ]
    )
    behind = _of(stated, "never behind PartitionTuner")
    assert (behind.where, behind.ours["ours"], behind.repeats) == (AIM, "1 of 1", "yes")
    assert behind.ours[EXECUTED] == "0 of 1 (not SqueezeNet)"


def test_the_more_on_the_npu_the_less_exact() -> None:
    def row(scheme: str, convs: int, cosine: float) -> dict[str, object]:
        return {"network": "SqueezeNet", "scheme": scheme, "Convs on NPU": convs, "cosine": cosine}

    assert not list(accuracy_statements([row("OpSeq", 12, 0.9), row("ours", 12, 0.8)]))
    rows = [row("TypeSeq", 24, 0.9), row("OpSeq", 18, 0.95), row("ours", 12, 0.94)]
    pairs, typeseq = accuracy_statements(rows)
    assert (pairs.ours["ours"], pairs.repeats) == ("2 of 3", "partly")
    assert (typeseq.ours["ours"], typeseq.repeats) == ("cosine 0.9000, others 0.9400 to 0.9500", "yes")


def test_a_trained_reader_reads_no_more_the_more_is_on_the_npu() -> None:
    def row(scheme: str, convs: int, right: int) -> dict[str, object]:
        return {"scheme": scheme, "Convs on NPU": convs, "lines right": right, "lines": 10}

    rows = [row("CPU alone", 0, 9), row("TypeSeq", 14, 8), row("OpSeq", 6, 9)]
    lower, pairs = reader_statements(rows)
    assert (lower.ours["ours"], lower.repeats) == ("9 of 10 lines right, others TypeSeq 8, OpSeq 9", "partly")
    assert (pairs.ours["ours"], pairs.repeats, pairs.kind) == ("3 of 3", "yes", "measured")
    assert list(reader_statements([])) == []
