"""Cells beside the paper's, and what it states beside what came out."""

from __future__ import annotations

from benchmarks.partitiontuner.accuracy_statements import accuracy_statements
from benchmarks.partitiontuner.cases import GIVEN, SUNK
from benchmarks.partitiontuner.figures import reductions_figure, times_figure
from benchmarks.partitiontuner.page import page
from benchmarks.partitiontuner.statements import Statement, statements
from benchmarks.partitiontuner.tables import figure_6, of_form, past_the_paper, table_2, table_3, table_4, times
from tests.benchmarks.partitiontuner.results import result


def test_a_cell_has_the_papers_time_and_ours_and_says_what_was_fitted() -> None:
    found = [
        result("squeezenet", "partitiontuner", 180, 181.23),
        result("squeezenet", "typeseq", 190),
        result("squeezenet", "forkjoin", 170, 171),
        result("zfnet512", "typeseq", 1700),
    ]
    zfnet, squeezenet = table_2(found)  # in the paper's order
    assert zfnet["TypeSeq"] == "1694.4 / 1700.0"
    assert squeezenet["TypeSeq"] == "195.5 / 190.0*"
    assert squeezenet["PartitionTuner"] == "185.6 / 180.0 / 181.2"
    assert squeezenet["ours"] == "170.0 / 171.0"
    assert squeezenet["OpSeq"] == ""
    one = times(found)[1]
    assert (one["paper's cell"], one["executed ms"], one["hand-overs ms"]) == ("fitted", None, None)


def test_counts_stand_beside_the_papers() -> None:
    found = [
        result("squeezenet", "typeseq", 190, partitions=17, on_npu=(24, 8)),
        result("squeezenet", "forkjoin", 170, partitions=29, on_npu=(12, 4)),
    ]
    (operators,), (partitions,) = table_3(found), table_4(found)
    assert operators["Conv on NPU, TypeSeq"] == "24 (24)"
    assert operators["Relu on NPU, TypeSeq"] == "8 (8)"
    assert operators["Conv on NPU, PartitionTuner"] == " (18)"
    assert operators["Conv on NPU, ours"] == "12"
    assert (partitions["TypeSeq"], partitions["OpSeq"], partitions["ours"]) == ("17 (25)", " (29)", "29")


def test_reductions_are_of_what_was_executed_where_both_were() -> None:
    found = [
        result("resnet50", "baseline", 3000, 3200),
        result("resnet50", "typeseq", 600, 800),
        result("resnet50", "opseq", 750),
    ]
    typeseq, opseq = figure_6(found)
    assert (typeseq["predicted %"], typeseq["executed %"]) == (80, 75)
    assert round(float(str(typeseq["paper %"])), 2) == 80.02
    assert (opseq["predicted %"], opseq["executed %"]) == (75, None)
    assert figure_6(found[1:]) == past_the_paper(found) == []


def test_a_network_without_a_second_form_is_of_both() -> None:
    found = [
        result("resnet50", "typeseq", 1),
        result("squeezenet", "typeseq", 2),
        result("squeezenet", "typeseq", 3, form=SUNK),
    ]
    assert [one.predicted_ms for one in of_form(found, GIVEN)] == [1, 2]
    assert [one.predicted_ms for one in of_form(found, SUNK)] == [1, 3]


def _of(found: list[Statement], what: str) -> Statement:
    (one,) = (one for one in found if what in one.what)
    return one


def test_gains_are_judged_by_what_was_executed() -> None:
    found = statements(
        [
            result("squeezenet", "typeseq", 100, 100, partitions=17),
            result("squeezenet", "partitiontuner", 95, 90, partitions=23),
            result("resnet50", "opseq", 100, partitions=97),
            result("resnet50", "partitiontuner", 93),
            result("resnet18", "opseq", 100, partitions=33),
            result("resnet18", "partitiontuner", 103),
        ]
    )
    squeezenet = _of(found, "SqueezeNet: PartitionTuner is quicker than TypeSeq")
    assert (squeezenet.predicted, squeezenet.executed, squeezenet.repeats) == ("5.00%", "10.00%", "nearly")
    resnet50 = _of(found, "ResNet-50: PartitionTuner is quicker than OpSeq")
    assert (resnet50.predicted, resnet50.executed, resnet50.repeats) == ("7.00%", "", "yes")
    assert _of(found, "ResNet-18: PartitionTuner is quicker than OpSeq").repeats == "no"
    assert not [one for one in found if "the CPU alone" in one.what]  # it was not run


def test_one_plan_under_two_names_is_not_quicker_than_itself() -> None:
    own = [
        result("resnet50", "typeseq", 640, 652, partitions=33),
        result("resnet50", "partitiontuner", 640, 645, partitions=33),
    ]
    one = _of(statements(own), "PartitionTuner is quicker than TypeSeq")
    assert (one.executed, one.repeats) == ("0 of 1 (not ResNet-50)", "no")
    own[1] = result("resnet50", "partitiontuner", 639, 645, partitions=34)
    assert _of(statements(own), "PartitionTuner is quicker than TypeSeq").repeats == "yes"


def test_ours_is_held_against_partitiontuner() -> None:
    found = statements(
        [
            result("squeezenet", "partitiontuner", 180, 180, partitions=23),
            result("squeezenet", "forkjoin", 170, 181, partitions=29),
        ]
    )
    behind = _of(found, "never behind PartitionTuner")
    assert (behind.predicted, behind.executed, behind.repeats) == ("1 of 1", "0 of 1 (not SqueezeNet)", "no")


def test_the_more_on_the_npu_the_less_exact() -> None:
    def row(scheme: str, convs: int, cosine: float) -> dict[str, object]:
        return {"network": "SqueezeNet", "scheme": scheme, "Convs on NPU": convs, "cosine": cosine}

    assert not list(accuracy_statements([row("OpSeq", 12, 0.9), row("ours", 12, 0.8)]))
    rows = [row("TypeSeq", 24, 0.9), row("OpSeq", 18, 0.95), row("ours", 12, 0.94)]
    pairs, typeseq = accuracy_statements(rows)
    assert (pairs.executed, pairs.repeats) == ("2 of 3", "partly")
    assert (typeseq.executed, typeseq.repeats) == ("cosine 0.9000, others 0.9400 to 0.9500", "yes")


def test_figures_have_a_panel_for_each_column_that_is_known() -> None:
    found = [result("squeezenet", "typeseq", 190), result("squeezenet", "forkjoin", 170)]
    assert len(times_figure(times(found)).axes) == 2  # none was executed
    found += [result("resnet18", "baseline", 1300, 1310), result("resnet18", "typeseq", 280, 281)]
    assert len(times_figure(times(found)).axes) == 3
    assert len(reductions_figure(figure_6(found)).axes) == 3


def test_the_page_has_what_was_found() -> None:
    about = dict.fromkeys(("scale", "repeat", "date", "commit", "load", "told"), "x")
    text = page({"A": [{"b": 1.23456, "c": None}], "empty": []}, ("times",), about)
    assert "## A\n\n| b | c |\n| --- | --- |\n| 1.235 |  |\n" in text
    assert "partitiontuner_times.png" in text
    assert "empty" not in text
    assert "schedules.png" not in text
