"""The tables and figures of the PartitionTuner paper, on its board, emulated: `python -m benchmarks partitiontuner`.

Each network, as given and with its Relus sunk, is planned by the paper's four schemes and ours, then executed by a
daemon for each. The page is written after every network, so that an interrupted run still counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.partitiontuner.accuracy import FIGURE_7, closeness_rows, reader_rows
from benchmarks.partitiontuner.board import BOARD, NETWORKS, Cell, board_devices
from benchmarks.partitiontuner.cases import GIVEN, SUNK, Planned, cases, planned, ready_for
from benchmarks.partitiontuner.fit import SETS, cells_with, kept_sets
from benchmarks.partitiontuner.held import CPU_WITHIN, WITHIN
from benchmarks.partitiontuner.live import executed
from benchmarks.partitiontuner.orders import order_rows
from benchmarks.partitiontuner.statements import (
    Key,
    accuracy_statements,
    found_of,
    reader_statements,
    size_statements,
    statements,
)
from benchmarks.partitiontuner.tables import (
    figure_6,
    of_form,
    past_the_paper,
    table_2,
    table_3,
    table_4,
    times,
)
from benchmarks.report.page import words
from benchmarks.report.report import Report
from benchmarks.report.results import RESULTS, Row, read_csv
from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.papers.partitiontuner.partition_profile import processor_costs
from shisha_rt.planner.strategies import SCHEMES


@dataclass(slots=True)
class _Found:
    """All results so far. `sets`: by form, cells by each other set of numbers."""

    report: Report
    sets: dict[str, list[dict[Key, Cell]]]
    results: list[Planned] = field(default_factory=list)
    sizes_mb: dict[str, float] = field(default_factory=dict)
    closeness: list[Row] = field(default_factory=list)
    reader: list[Row] = field(default_factory=list)
    orders: list[Row] = field(default_factory=list)

    def statements(self, form: str) -> list[Row]:
        has_sunk = {row["network"] for row in self.closeness if row["form"] == SUNK}
        closeness = [row for row in self.closeness if row["form"] == form or row["network"] not in has_sunk]
        stated = (
            *size_statements(self.sizes_mb),
            *statements(found_of(of_form(self.results, form), form, self.sets[form])),
            *accuracy_statements(closeness),
            *reader_statements(self.reader),
        )
        return [statement.row() for statement in stated]

    def _spans(self) -> dict[tuple[str, str, str], str]:
        """Ranges of each cell over all sets, by network, form and scheme."""
        spans: dict[tuple[str, str, str], str] = {}
        for form, sets in self.sets.items():
            for network, scheme in sets[0] if sets else ():
                ms = [cells[network, scheme].ms for cells in sets]
                spans[network, form, scheme] = f"{min(ms):.1f} to {max(ms):.1f}"
        return spans

    def save(self) -> dict[str, list[Row]]:
        """Write the page, and the files that other pages show."""
        stated = self.statements(SUNK)
        sections = {
            "Statements: the paper's form, Relus sunk": stated,
            "Statements: networks as given": self.statements(GIVEN),
            "Table 2, ms: the paper's / ours predicted / ours executed (*: fitted)": table_2(self.results),
            "Table 2: times one by one, hand-overs apart": times(self.results, self._spans()),
            "Figure 6: quicker than the CPU alone": list(figure_6(self.results)),
            "Table 3: operators on the NPU, ours and (the paper's)": table_3(self.results),
            "Table 4: partitions, ours and (the paper's)": list(table_4(self.results)),
            "Past the paper: the least time of a frame": list(past_the_paper(self.results)),
            "Figure 7: int8 against floating point, random weights": self.closeness,
            "Figure 7 with a trained network: lines of text read right": self.reader,
            "Small graphs on paper: over the least of any assignment in any order": self.orders,
        }
        self.report.save(stated, "partitiontuner_statements")
        if self.orders:
            self.report.save(self.orders, "partitiontuner_orders")
        rows = read_csv(RESULTS / "partitiontuner_fit_reach.csv")
        reach = {row["cells"]: float(row["furthest %"]) for row in rows}
        self.report.save_page(
            words(__file__)[0],
            sections,
            scale=load_machine(BOARD).time_scale,
            told=1e3 * HANDOVER_S,
            sets=max(map(len, self.sets.values()), default=0),
            cpu_within=CPU_WITHIN,
            npu_within=WITHIN,
            reach=[reach["all 14"], reach["all but GoogLeNet"]],
        )
        return sections


def _cells_by_set(networks: Sequence[str], count: int) -> dict[str, list[dict[Key, Cell]]]:
    """By form, for the first `count` stored sets of numbers: the cells of all networks."""
    sets, devices = kept_sets()[:count], board_devices()
    by_form: dict[str, list[dict[Key, Cell]]] = {form: [{} for _ in sets] for form in (GIVEN, SUNK)}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(networks, Path(folder)):
            print(f"partitiontuner: {case} by {len(sets)} sets of numbers ...", flush=True)
            graph = read_model(case.path).graph
            for index, numbers in enumerate(sets):
                cells = {(case.network, scheme): cell for scheme, cell in cells_with(graph, devices, numbers).items()}
                # A network as given counts in both forms, unless the other form differs.
                for form in (GIVEN, SUNK) if case.form == GIVEN else (SUNK,):
                    by_form[form][index].update(cells)
    return by_form


def partitiontuner(
    networks: Annotated[
        str, typer.Option(help="Of the paper's, separated by commas; fewer than all are a quick run.")
    ] = ",".join(NETWORKS),
    rounds: Annotated[int, typer.Option(min=0, help="In each, every scheme gets a frame; 0: nothing is executed.")] = 5,
    answers: Annotated[int, typer.Option(min=0, help="Frames by which int8 is held against fp32; 0: none.")] = 16,
    graphs: Annotated[int, typer.Option(min=0, help="Small random graphs on paper.")] = 500,
    sets: Annotated[int, typer.Option(min=0, help="Other sets of numbers that hold the fitted cells; 0: none.")] = SETS,
    lines: Annotated[int, typer.Option(min=0, help="Lines of text that a trained network reads; 0: none.")] = 64,
) -> None:
    """The PartitionTuner paper's tables and figures beside ours, executed by daemons on its board, emulated."""
    machine = load_machine(BOARD)
    check_runnable(machine)
    named, about = networks.split(","), {"emulated": f"{machine.name}, without its time_scale"}
    report = Report("partitiontuner", about, quick=set(named) != set(NETWORKS))
    collected = _Found(report, _cells_by_set(named, sets))
    with tempfile.TemporaryDirectory() as sunk:
        for case in cases(named, Path(sunk)):
            report.step(str(case))
            collected.sizes_mb.setdefault(case.network, case.path.stat().st_size / 1e6)
            costs = processor_costs(ready_for(case.path, machine)).costs
            plans = [planned(case, scheme, costs) for scheme in SCHEMES]
            measured = executed(plans, BOARD, rounds) if rounds else {}
            collected.results += [replace(plan, measured=measured.get(plan.scheme)) for plan in plans]
            if answers and case.network in FIGURE_7:
                collected.closeness += closeness_rows(plans, answers)
            collected.save()
    if lines:
        collected.reader = list(reader_rows(lines))
    if graphs:
        collected.orders = order_rows(graphs)
    for title, rows in collected.save().items():
        if rows:
            report.show(f"{title} (emulated)", rows)
