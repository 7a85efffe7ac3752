"""The tables and figures of the PartitionTuner paper, on its board, emulated: `python -m benchmarks partitiontuner`.

Each network, as given and with its Relus sunk, under the paper's four schemes and ours: planned, then executed by a
daemon for each. What is there is written after every network, so that a run that is cut short still counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.partitiontuner.accuracy_statements import accuracy_statements
from benchmarks.partitiontuner.board import BOARD
from benchmarks.partitiontuner.cases import GIVEN, SUNK, cases, checked_schemes, planned, ready_for
from benchmarks.partitiontuner.figure_7 import FIGURE_7, closeness_rows
from benchmarks.partitiontuner.figures import accuracy_figure, reductions_figure, schedules_figure, times_figure
from benchmarks.partitiontuner.live import NOT_RUN, executed
from benchmarks.partitiontuner.page import save_page
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.partitiontuner.schedules import graph_rows, schedule_rows, schedule_summary, tried
from benchmarks.partitiontuner.statements import statements
from benchmarks.partitiontuner.tables import (
    Result,
    figure_6,
    of_form,
    past_the_paper,
    profile_row,
    table_2,
    table_3,
    table_4,
    times,
)
from benchmarks.report.facts import facts
from benchmarks.report.results import RESULTS, Row, save_csv, save_figure, show
from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.papers.partitiontuner.measured_processors import processor_costs
from shisha_rt.planner.strategies import SCHEMES

ROUNDS: Final = 5
_ALL_NETWORKS: Final = ",".join(NETWORKS)
_ALL_SCHEMES: Final = ",".join(SCHEMES)


@dataclass(slots=True)
class _Kept:
    """All that was found so far."""

    about: dict[str, str]
    results: list[Result] = field(default_factory=list)
    closeness: list[Row] = field(default_factory=list)
    schedules: list[Row] = field(default_factory=list)
    summary: list[Row] = field(default_factory=list)
    profiles: list[Row] = field(default_factory=list)
    graphs: list[Row] = field(default_factory=list)

    def statements(self, form: str) -> list[Row]:
        closeness = [row for row in self.closeness if row["form"] == form or not self._has_sunk(row)]
        return [one.row() for one in (*statements(of_form(self.results, form)), *accuracy_statements(closeness))]

    def _has_sunk(self, row: Row) -> bool:
        return any(other["network"] == row["network"] and other["form"] == SUNK for other in self.closeness)

    def tables(self) -> dict[str, tuple[str, list[Row]]]:
        return {
            "statements": ("Statements: the paper's form, Relus sunk", self.statements(SUNK)),
            "statements_as_given": ("Statements: networks as given", self.statements(GIVEN)),
            "table_2": ("Table 2, ms: the paper's / ours predicted / ours executed (*: fitted)", table_2(self.results)),
            "times": ("Table 2: times one by one, hand-overs apart", times(self.results)),
            "reductions": ("Figure 6: quicker than the CPU alone", figure_6(self.results)),
            "operators": ("Table 3: operators on the NPU, ours and (the paper's)", table_3(self.results)),
            "partitions": ("Table 4: partitions, ours and (the paper's)", table_4(self.results)),
            "profiles": ("What schemes go by, and how long they plan (the paper prints none of it)", self.profiles),
            "past": ("Past the paper: the least time of a frame", past_the_paper(self.results)),
            "accuracy": ("Figure 7: int8 against floating point", self.closeness),
            "schedules_summary": ("Random schedules: how far off predictions are", self.summary),
            "schedules": ("Random schedules, one by one", self.schedules),
            "graphs": ("Random graphs on paper: ours over its proven bound", self.graphs),
        }

    def save(self) -> None:
        """Tables and the page."""
        for name, (_, rows) in self.tables().items():
            if rows:
                save_csv(f"partitiontuner_{name}", rows, self.about)
        self._save_page()

    def draw(self) -> None:
        figures = {}
        if self.results:
            figures["times"] = times_figure(times(self.results))
        if reductions := figure_6(self.results):
            figures["reductions"] = reductions_figure(reductions)
        if self.closeness:
            figures["accuracy"] = accuracy_figure(self.closeness)
        if self.schedules:
            figures["schedules"] = schedules_figure(self.schedules)
        for name, figure in figures.items():
            save_figure(f"partitiontuner_{name}", figure, self.about)
        self._save_page(tuple(figures))

    def _save_page(self, figures: Sequence[str] = ()) -> None:
        left_out = ("schedules", "reductions")
        sections = {title: rows for name, (title, rows) in self.tables().items() if name not in left_out}
        save_page(sections, figures, self.about)


def partitiontuner(
    networks: Annotated[
        str, typer.Option(help="Of the paper's, separated by commas; or none, an empty text.")
    ] = _ALL_NETWORKS,
    schemes: Annotated[str, typer.Option(help="Separated by commas.")] = _ALL_SCHEMES,
    rounds: Annotated[int, typer.Option(help="In each, every scheme gets its frames; 0: on paper only.")] = ROUNDS,
    frames: Annotated[int, typer.Option(help="In each round; of each random schedule three times as many.")] = 1,
    machine: Annotated[
        str, typer.Option(help="A machine file or shipped name: a CPU place, then an NPU place.")
    ] = BOARD,
    answers: Annotated[int, typer.Option(help="Frames by which int8 is held against floating point; 0: none.")] = 16,
    schedules: Annotated[int, typer.Option(help="Random schedules to run; 0: none.")] = 30,
    graphs: Annotated[int, typer.Option(help="Random graphs on paper; 0: none.")] = 1000,
) -> None:
    """The PartitionTuner paper's tables and figures beside ours, executed by daemons on its board, emulated."""
    described = load_machine(machine)
    check_runnable(described)
    chosen = checked_schemes(schemes.split(","))
    said = "".join(
        f" {option} {given}"
        for option, given, usual in (
            ("--networks", networks or '""', _ALL_NETWORKS),
            ("--schemes", schemes, _ALL_SCHEMES),
            ("--machine", machine, BOARD),
        )
        if given != usual
    )
    counts = f"--rounds {rounds} --frames {frames} --answers {answers} --schedules {schedules} --graphs {graphs}"
    about = facts(f"partitiontuner{said} {counts}")
    kept = _Kept(
        about
        | {
            "emulated": f"{described.name}, time_scale = {described.time_scale:g}, which is taken out of all seconds",
            "scale": f"{described.time_scale:g}",
            "told": f"{1e3 * HANDOVER_S:g} ms of this host's time for each",
            "load": about["load average at the start"],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        for case in cases([name for name in networks.split(",") if name], Path(folder)):
            print(f"partitiontuner: {case} ...", flush=True)
            profile = processor_costs(ready_for(case.path, described))
            plans = [planned(case, scheme, profile.costs) for scheme in chosen]
            kept.profiles.append(profile_row(profile, plans))
            measured = executed(plans, machine, rounds, frames) if rounds else {}
            kept.results += [Result(its, measured.get(its.scheme)) for its in plans]
            if answers and case.network in FIGURE_7:
                kept.closeness += closeness_rows(plans, answers)
            kept.save()
    if graphs:
        print(f"partitiontuner: {graphs} random graphs on paper ...", flush=True)
        kept.graphs = graph_rows(graphs)
    if schedules:
        _run_schedules(kept, described, machine, schedules, 3 * frames)
    kept.save()
    kept.draw()
    for name, (title, rows) in kept.tables().items():
        if rows and name != "schedules":
            show(f"{title} (emulated)", rows)
    print(f"written to {RESULTS}: partitiontuner.md, partitiontuner_*.csv, partitiontuner_*.png")


def _run_schedules(kept: _Kept, machine: Machine, source: str, count: int, frames: int) -> None:
    print(f"partitiontuner: {count} random schedules ...", flush=True)
    found = []
    try:
        for one in tried(machine, source, count, frames):
            found.append(one)
            kept.schedules, kept.summary = schedule_rows(found), schedule_summary(found)
            kept.save()
    except NOT_RUN as error:
        print(f"  the other schedules are left out: {error}", flush=True)


if __name__ == "__main__":
    typer.run(partitiontuner)
