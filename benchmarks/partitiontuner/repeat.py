"""The tables and figures of the PartitionTuner paper, on its board, emulated: `python -m benchmarks partitiontuner`.

Each network, as given and with its Relus sunk, is planned by the paper's four schemes and ours, then executed by a
daemon for each. Results are written after every network, so that an interrupted run still counts. Parts that are not
run again are taken from their files, and the page states from which run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.partitiontuner.accuracy_statements import accuracy_statements, reader_statements
from benchmarks.partitiontuner.board import BOARD, Cell, board_devices
from benchmarks.partitiontuner.cases import GIVEN, SUNK, Case, cases, checked_schemes, planned, ready_for
from benchmarks.partitiontuner.figure_7 import FIGURE_7, closeness_rows, reader_scheme_rows
from benchmarks.partitiontuner.figures import accuracy_figure, reductions_figure, schedules_figure, times_figure
from benchmarks.partitiontuner.fit import SETS, cells_with, kept_sets
from benchmarks.partitiontuner.held import CPU_WITHIN, WITHIN
from benchmarks.partitiontuner.live import NOT_RUN, executed
from benchmarks.partitiontuner.page import HEAD, figures_section, old_in_words, reach_in_words
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.partitiontuner.schedules import graph_rows, order_rows, schedule_rows, schedule_summary, tried
from benchmarks.partitiontuner.statements import Key, found_of, size_statements, statements
from benchmarks.partitiontuner.tables import (
    Result,
    executed_before,
    executed_rows,
    figure_6,
    of_form,
    past_the_paper,
    profile_row,
    table_2,
    table_3,
    table_4,
    times,
)
from benchmarks.report import results
from benchmarks.report.facts import facts
from benchmarks.report.headers import header
from benchmarks.report.page import save_page
from benchmarks.report.results import Row, read_csv, save_csv, save_figure, show
from shisha_rt.costs.costs import HANDOVER_S
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.profile_store import FILE_NAME, ProfileStore
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.papers.partitiontuner.measured_processors import processor_costs
from shisha_rt.papers.partitiontuner.partition_profile import PartitionProfile, profile_partitions
from shisha_rt.planner.strategies import SCHEMES

ROUNDS: Final = 5
_ALL_NETWORKS: Final = ",".join(NETWORKS)
_ALL_SCHEMES: Final = ",".join(SCHEMES)


@dataclass(slots=True)
class _Kept:
    """All results so far. `sets`: by form, cells by each other set of numbers. `old`: parts that are not run again."""

    about: dict[str, str]
    sets: dict[str, list[dict[Key, Cell]]]
    old: frozenset[str] = frozenset()
    results: list[Result] = field(default_factory=list)
    sizes_mb: dict[str, float] = field(default_factory=dict)
    closeness: list[Row] = field(default_factory=list)
    reader: list[Row] = field(default_factory=list)
    schedules: list[Row] = field(default_factory=list)
    summary: list[Row] = field(default_factory=list)
    profiles: list[Row] = field(default_factory=list)
    graphs: list[Row] = field(default_factory=list)
    orders: list[Row] = field(default_factory=list)

    def statements(self, form: str) -> list[Row]:
        closeness = [row for row in self.closeness if row["form"] == form or not self._has_sunk(row)]
        found = found_of(of_form(self.results, form), form, self.sets.get(form, ()))
        stated = (
            *size_statements(self.sizes_mb),
            *statements(found),
            *accuracy_statements(closeness),
            *reader_statements(self.reader),
        )
        return [one.row() for one in stated]

    def _has_sunk(self, row: Row) -> bool:
        return any(other["network"] == row["network"] and other["form"] == SUNK for other in self.closeness)

    def _spans(self) -> dict[tuple[str, str, str], str]:
        """Ranges of each cell over all sets, by network, form and scheme."""
        found: dict[tuple[str, str, str], str] = {}
        for form, sets in self.sets.items():
            for network, scheme in sets[0] if sets else ():
                ms = [cells[network, scheme].ms for cells in sets]
                found[network, form, scheme] = f"{min(ms):.1f} to {max(ms):.1f}"
        return found

    def tables(self) -> dict[str, tuple[str, list[Row]]]:
        return {
            "statements": ("Statements: the paper's form, Relus sunk", self.statements(SUNK)),
            "statements_as_given": ("Statements: networks as given", self.statements(GIVEN)),
            "table_2": ("Table 2, ms: the paper's / ours predicted / ours executed (*: fitted)", table_2(self.results)),
            "times": ("Table 2: times one by one, hand-overs apart", times(self.results, self._spans())),
            _EXECUTED: ("Executed", executed_rows(self.results)),
            "reductions": ("Figure 6: quicker than the CPU alone", figure_6(self.results)),
            "operators": ("Table 3: operators on the NPU, ours and (the paper's)", table_3(self.results)),
            "partitions": ("Table 4: partitions, ours and (the paper's)", table_4(self.results)),
            "profiles": (
                f"Profiling on this host ({_ENGINES}), and planning (the paper prints neither)",
                self.profiles,
            ),
            "past": ("Past the paper: the least time of a frame", past_the_paper(self.results)),
            "accuracy": ("Figure 7: int8 against floating point, random weights", self.closeness),
            "reader": ("Figure 7 with a trained network: lines of text read right", self.reader),
            "schedules_summary": ("Random schedules: how far off predictions are", self.summary),
            "schedules": ("Random schedules, one by one", self.schedules),
            "graphs": ("Random graphs on paper: blocks with barriers over their proven bound", self.graphs),
            "orders": ("Small graphs on paper: over the least of any assignment in any order", self.orders),
        }

    def save(self) -> None:
        """Write the tables and the page."""
        for name, (_, rows) in self.tables().items():
            if rows and name not in self.old:
                save_csv(f"partitiontuner_{name}", rows, self.about)
        self._save_page()

    def draw(self) -> None:
        figures = {}
        if self.results:
            figures["times"] = times_figure(times(self.results))
        if reductions := figure_6(self.results):
            figures["reductions"] = reductions_figure(reductions)
        if self.closeness and "accuracy" not in self.old:
            figures["accuracy"] = accuracy_figure(self.closeness)
        if self.schedules and "schedules" not in self.old:
            figures["schedules"] = schedules_figure(self.schedules)
        for name, figure in figures.items():
            save_figure(f"partitiontuner_{name}", figure, self.about)
        self._save_page(
            (*figures, *(name for name in self.old if (results.RESULTS / f"partitiontuner_{name}.png").is_file()))
        )

    def _save_page(self, figures: Sequence[str] = ()) -> None:
        left_out = ("schedules", "reductions", _EXECUTED)
        sections = {title: rows for name, (title, rows) in self.tables().items() if name not in left_out}
        path = results.RESULTS / "partitiontuner_fit_reach.csv"
        reach = reach_in_words(read_csv(path) if path.is_file() else [])
        count = max(map(len, self.sets.values()), default=0)
        spans = {"cpu_within": f"{CPU_WITHIN:.0%}", "npu_within": f"{WITHIN:.1%}"}
        files = {name: results.RESULTS / f"partitiontuner_{name}.csv" for name in sorted(self.old)}
        old = {name: header(path) for name, path in files.items() if path.is_file()}
        head = HEAD.format(**self.about, **spans, sets=count, reach=reach, old=old_in_words(old))
        save_page("partitiontuner", head, {**sections, "Figures": figures_section(figures)})


_EXECUTED: Final = "executed"


def _old(name: str) -> list[Row]:
    """The last results of a part."""
    path = results.RESULTS / f"partitiontuner_{name}.csv"
    return list(read_csv(path)) if path.is_file() else []


_ENGINES: Final = "two-engines"
"""A machine of this host's cores: the board's devices have formulas, so nothing of them is measured."""


def _profiled(case: Case, store: ProfileStore) -> PartitionProfile:
    machine = load_machine(_ENGINES)
    (place, *_) = machine.places
    compiled = compile_model(case.path, plain=machine.finest_layers)
    return profile_partitions(compiled, machine, place, devices_of(machine, place), store=store)


def _cells_by_set(networks: Sequence[str], count: int) -> dict[str, list[dict[Key, Cell]]]:
    """By form, for the first `count` stored sets of numbers: the cells of all networks."""
    sets, devices = kept_sets()[:count], board_devices()
    found: dict[str, list[dict[Key, Cell]]] = {form: [{} for _ in sets] for form in (GIVEN, SUNK)}
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(networks, Path(folder)):
            print(f"partitiontuner: {case} by {len(sets)} sets of numbers ...", flush=True)
            graph = read_model(case.path).graph
            for index, numbers in enumerate(sets):
                its = {(case.network, scheme): cell for scheme, cell in cells_with(graph, devices, numbers).items()}
                # A network as given counts in both forms, unless the other form differs.
                for form in (GIVEN, SUNK) if case.form == GIVEN else (SUNK,):
                    found[form][index].update(its)
    return found


def partitiontuner(
    networks: Annotated[
        str, typer.Option(help="Of the paper's, separated by commas; or none, an empty text.")
    ] = _ALL_NETWORKS,
    schemes: Annotated[str, typer.Option(help="Separated by commas.")] = _ALL_SCHEMES,
    rounds: Annotated[int, typer.Option(help="In each, every scheme gets its frames; 0: as they were.")] = ROUNDS,
    frames: Annotated[int, typer.Option(help="In each round; of each random schedule three times as many.")] = 1,
    machine: Annotated[
        str, typer.Option(help="A machine file or shipped name: a CPU place, then an NPU place.")
    ] = BOARD,
    answers: Annotated[int, typer.Option(help="Frames by which int8 is held against fp32; 0: as it was.")] = 16,
    schedules: Annotated[int, typer.Option(help="Random schedules to run; 0: as they were.")] = 30,
    graphs: Annotated[int, typer.Option(help="Random graphs on paper; half as many small ones.")] = 1000,
    sets: Annotated[int, typer.Option(help="Other sets of numbers that hold the fitted cells; 0: none.")] = SETS,
    lines: Annotated[int, typer.Option(help="Lines of text that a trained network reads; 0: as it was.")] = 64,
    profiles: Annotated[bool, typer.Option(help="Measure operators and groups on this host, or as they were.")] = True,
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
    counts += f" --sets {sets} --lines {lines}{'' if profiles else ' --no-profiles'}"
    parts = {
        _EXECUTED: rounds,
        "accuracy": answers,
        "schedules": schedules,
        "schedules_summary": schedules,
        "graphs": graphs,
        "orders": graphs,
        "reader": lines,
        "profiles": profiles,
    }
    old = {name: _old(name) for name, wanted in parts.items() if not wanted}
    about = facts(f"partitiontuner{said} {counts}")
    named = [name for name in networks.split(",") if name]
    kept = _Kept(
        about
        | {
            "emulated": f"{described.name}, time_scale = {described.time_scale:g}, which is taken out of all seconds",
            "scale": f"{described.time_scale:g}",
            "told": f"{1e3 * HANDOVER_S:g} ms of this host's time for each",
            "load": about["load average at the start"],
        },
        _cells_by_set(named, sets),
        frozenset(old),
        closeness=old.get("accuracy", []),
        reader=old.get("reader", []),
        schedules=old.get("schedules", []),
        summary=old.get("schedules_summary", []),
        profiles=old.get("profiles", []),
        graphs=old.get("graphs", []),
        orders=old.get("orders", []),
    )
    with tempfile.TemporaryDirectory() as folder, ProfileStore(Path(folder) / FILE_NAME) as store:
        for case in cases(named, Path(folder)):
            print(f"partitiontuner: {case} ...", flush=True)
            kept.sizes_mb.setdefault(case.network, case.path.stat().st_size / 1e6)
            costs = processor_costs(ready_for(case.path, described)).costs
            plans = [planned(case, scheme, costs) for scheme in chosen]
            if profiles:
                kept.profiles.append(profile_row(_profiled(case, store), plans))
            measured = executed(plans, machine, rounds, frames) if rounds else executed_before(old[_EXECUTED], case)
            kept.results += [Result(its, measured.get(its.scheme)) for its in plans]
            if answers and case.network in FIGURE_7:
                kept.closeness += closeness_rows(plans, answers)
            kept.save()
    if lines:
        kept.reader = reader_scheme_rows(lines)
    if graphs:
        print(f"partitiontuner: {graphs} random graphs on paper ...", flush=True)
        kept.graphs = graph_rows(graphs)
        kept.orders = order_rows(graphs // 2)
    if schedules:
        _run_schedules(kept, described, machine, schedules, 3 * frames)
    kept.save()
    kept.draw()
    for name, (title, rows) in kept.tables().items():
        if rows and name != "schedules":
            show(f"{title} (emulated)", rows)
    print(f"written to {results.RESULTS}: partitiontuner.md, partitiontuner_*.csv, partitiontuner_*.png")


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
