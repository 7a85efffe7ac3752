"""The GP paper's experiments repeated: the shapes that its text states, on the board as described."""

from __future__ import annotations

import pytest

from benchmarks.splits.networks import alone, board_problem, totals
from benchmarks.splits.paper import layer_rows, network_row, network_run, trace_rows, weights_rows
from shisha_rt.papers.gp.chain import faults


@pytest.mark.long
def test_one_layer_is_tightened_as_in_figures_3_to_5() -> None:
    rows = list(trace_rows())
    assert [str(row["figure"])[0] for row in rows] == ["3", "3", "5", "5"]
    for row in rows:
        assert 5 <= int(str(row["steps"])) <= 40
        assert float(str(row["best us"])) <= float(str(row["condensed again us"])) <= float(str(row["GP us"]))
    assert rows[1]["GP: shares"] == "13.97/2.03 -> 14/2"


def test_the_printed_error_of_the_weight_is_not_that_of_its_k() -> None:
    error_by_k = {row["k"]: row["L2"] for row in weights_rows()}
    assert error_by_k[100] == pytest.approx(0.05, abs=0.001)
    assert error_by_k[17] == pytest.approx(0.12, abs=0.001)


def test_alexnet_goes_from_the_fpga_to_the_gpu() -> None:
    run = network_run("AlexNet", "latency", "sequence", one_for_all=False)
    rows = list(layer_rows(run))
    assert [row["N"] for row in rows] == [96, 256, 384, 384, 256]
    assert [row["C"] for row in rows] == [3, 48, 256, 192, 192]
    assert float(str(rows[0]["fpga %"])) > 80
    assert float(str(rows[2]["gpu %"])) > 50
    assert faults(run.problem, run.shares) == []
    seconds, joules = totals(run.problem, run.shares)
    row = network_row(run)
    assert (row["ms"], row["mJ"]) == (1e3 * seconds, 1e3 * joules)
    assert seconds < totals(run.problem, alone(run.problem, "cpu"))[0]
    problem = board_problem("AlexNet", "latency", "sequence", one_for_all=True)
    assert faults(problem, run.shares) != []  # of one FPGA for all it would be too much
