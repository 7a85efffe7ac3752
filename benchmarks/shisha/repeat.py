"""The tables and figures of the Shisha paper, simulated: `python -m benchmarks shisha`, `--quick` for fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from benchmarks.report.page import words
from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.shisha.cases import (
    EIGHT_PLACES,
    FOUR_PLACES,
    NETWORKS,
    PAPERS,
    RESNET,
    SYNTHNET,
    YOLO,
    YOLO_HEADS,
    case,
)
from benchmarks.shisha.figures import (
    SIMULATED,
    alpha_figure,
    convergence_figure,
    heuristics_figure,
    heuristics_time_figure,
    optimality_figure,
    seeds_figure,
)
from benchmarks.shisha.searches import (
    SLOWDOWNS,
    alpha_rows,
    compared,
    from_seeds,
    heuristic_rows,
    search_rows,
    table_1,
    table_2,
)
from benchmarks.shisha.statements import statements
from shisha_rt.papers.simulate.paper_machines import CONFIGURATIONS

COSTS: Final = f"{SIMULATED}: a roofline of machines on paper; seconds are virtual, nothing was run"
MACHINES: Final = (FOUR_PLACES, EIGHT_PLACES)
"""Machines of Figures 6 and 9; the paper does not state which."""


FULL: Final = 200, 150_000, 100
"""Runs of each randomised rival; ES runs if it has at most so many plans; draws of H5 and H6."""
QUICK: Final = 20, 10_000, 20
SEEDS: Final = 100


def shisha(
    quick: Annotated[
        bool, typer.Option("--quick", help="20 runs of a randomised rival, not 200; ES on SynthNet only.")
    ] = False,
) -> None:
    """Shisha's tables and figures beside ours, on machines on paper: everything is simulated."""
    runs, most_plans, draws = QUICK if quick else FULL
    report = Report("shisha", {"costs": COSTS}, quick=quick)
    eight = case(SYNTHNET, EIGHT_PLACES)
    by_search = compared(eight, runs)
    four = [case(network, FOUR_PLACES) for network in NETWORKS]
    seeds = [from_seeds(case(network, m), SEEDS) for network in (YOLO, RESNET) for m in MACHINES]
    convergence = search_rows(eight, by_search)
    optimality = [
        row for network_case in four for row in search_rows(network_case, compared(network_case, runs, most_plans))
    ]
    heuristics = [row for network in PAPERS for m in CONFIGURATIONS for row in heuristic_rows(case(network, m), draws)]
    alphas = [
        row
        for network in (YOLO, YOLO_HEADS)
        for m in MACHINES
        for row in alpha_rows([(slowdown, case(network, m, slowdown)) for slowdown in SLOWDOWNS])
    ]
    seed_rows = [seeding.row() for seeding in seeds]
    stated = [statement.row() for statement in statements(convergence, optimality, seed_rows, heuristics, alphas)]

    tables: Mapping[str, Sequence[Row]] = {
        "Table 1": table_1(),
        "Table 2": table_2(),
        "Figure 4": convergence,
        "Figure 5": optimality,
        "Figure 6": seed_rows,
        "The paper's statements and ours": stated,
    }
    figures = {
        "convergence": convergence_figure(eight, by_search),
        "optimality": optimality_figure(optimality),
        "seeds": seeds_figure(seeds),
        "heuristics": heuristics_figure(heuristics),
        "heuristics_time": heuristics_time_figure(heuristics),
        "alpha": alpha_figure(alphas),
    }
    for title, rows in tables.items():
        report.show(f"{title} ({SIMULATED})", rows)
    report.save(stated, "shisha_statements")
    for name, figure in figures.items():
        report.save_figure(f"shisha_{name}", figure)
    on_page: Mapping[str, Sequence[Row] | str] = {
        "Statements": stated,
        "Table 1: heuristics": table_1(),
        "Table 2: machines": table_2(),
        "Figures": "\n\n".join(
            f"![Figure {number}: {what} (simulated)](shisha_{name}.png)\n\nFigure {number}: {what} (simulated)."
            for number, name, what in _FIGURES
        ),
    }
    report.save_page(words(__file__)[0], on_page)


_FIGURES: Final = (
    ("4", "convergence", "throughput over virtual time, SynthNet on eight places"),
    ("5", "optimality", "solutions against Exhaustive Search, four places"),
    ("6", "seeds", "Shisha's seed against random ones"),
    ("7", "heuristics", "H1 to H6 on C1 to C6, throughput"),
    ("8", "heuristics_time", "H1 and H3 on C1 to C6, convergence"),
    ("9", "alpha", "alpha, with slow places 3, 6 and 12 times slower"),
)
