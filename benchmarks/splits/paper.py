"""The GP paper's experiments, on devices described like its board: Figures 3 to 5, 7 to 9 and its rows of Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.report.page import table, words
from benchmarks.report.report import Report
from benchmarks.report.results import Row, number
from benchmarks.splits.networks import CASES, NETWORKS, alone, board_problem, totals
from benchmarks.splits.single_layer import layer_traces, trace_row, weights_rows
from benchmarks.splits.statements import statements
from shisha_rt.papers.gp.geometric.geometric import (
    FULL_NETWORK_K,
    GeometricSplit,
    TighteningRule,
    geometric_split,
)
from shisha_rt.papers.gp.methods import RivalName, split_by
from shisha_rt.papers.gp.problem import SplitProblem, layer_cost
from shisha_rt.papers.gp.shared import split_layer
from shisha_rt.planner.strategies import Execution, SplitObjective

PRINTED: Final[Mapping[str, str]] = {"AlexNet": "3.1 - 5.7", "VGG-16": "2.8 - 6.4", "ResNet-18": "2.8 - 6.3"}
"""Table 1: speedups of layers over the CPU alone."""
SETUPS: Final[Mapping[bool, str]] = {False: "one FPGA a layer", True: "one FPGA for all"}
STATED: Final = "The paper's statements and ours"
RIVALS: Final[tuple[RivalName, ...]] = ("balanced", "proportional", "greedy")
SWEPT: Final = (None, 1, 2, 5, 10, 50, 100, 200, 1000)


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """A network split by the programs. `shares` (layers, devices): rounded. `again`: condensed at each solution."""

    network: str
    setup: str
    problem: SplitProblem
    k: int | None
    found: GeometricSplit
    shares: tuple[tuple[int, ...], ...]
    wall_s: float
    again: GeometricSplit | None = None
    again_wall_s: float = 0.0

    @property
    def title(self) -> str:
        """The objective, and whether devices compute in sequence or in parallel."""
        return "energy" if self.problem.objective == "energy" else f"latency, in {self.problem.execution}"


def splits_paper() -> None:
    """Repeat the figures of the GP paper: the tightening, S(x), and AlexNet, VGG-16 and ResNet-18 split."""
    report = Report("splits_paper")
    runs = [
        condensed_again(network_run(network, objective, execution, one_for_all=one_for_all))
        for network in NETWORKS
        for one_for_all in SETUPS
        for objective, execution in CASES.values()
    ]
    traces, weights, networks = list(map(trace_row, layer_traces())), weights_rows(), list(map(network_row, runs))
    sweep = [row for network in NETWORKS for row in k_rows(network)]
    stated = [one.row() for one in statements(traces, weights, networks)]
    print(f"written to {report.save(stated, 'splits_paper_statements')}")
    sections: dict[str, Sequence[Row] | str] = {STATED: stated}
    head, notes = words(__file__, "paper")
    for (title, note), rows in zip(notes.items(), (traces, weights, networks, sweep), strict=True):
        report.show(title, rows)
        sections[title] = f"{table(rows)}\n\n{note}"
    report.show(STATED, stated)
    print(f"written to {report.save_page(head, sections)}")


def network_run(
    network: str,
    objective: SplitObjective,
    execution: Execution,
    *,
    one_for_all: bool,
    k: int | None = FULL_NETWORK_K,
) -> NetworkRun:
    problem = board_problem(network, objective, execution, one_for_all=one_for_all)
    started = perf_counter()
    found = geometric_split(problem, k)
    wall_s = perf_counter() - started
    if found.rounded is None:
        raise RuntimeError(f"{network}: {found.outcome}: {found.reason}")
    return NetworkRun(network, SETUPS[one_for_all], problem, k, found, found.rounded.shares, wall_s)


def condensed_again(run: NetworkRun) -> NetworkRun:
    """The run with the result of condensing again; steps of alpha are four times as long."""
    started = perf_counter()
    again = geometric_split(run.problem, run.k, again=True, rule=TighteningRule(step=1 / 16))
    return replace(run, again=again, again_wall_s=perf_counter() - started)


def layer_rows(run: NetworkRun) -> list[Row]:
    """Figure 9: each layer's filters by device, and how much faster than the CPU alone, communication in full."""
    problem = run.problem
    rows: list[Row] = []
    for layer, shares, on_cpu in zip(problem.layers, run.shares, alone(problem, "cpu"), strict=True):
        cost, cpu = layer_cost(problem, layer, shares), layer_cost(problem, layer, on_cpu)
        rows.append(
            {
                "layer": layer.name,
                **{name: layer.features[name] for name in ("C", "N")},
                **{
                    f"{device.name} %": 100 * units / layer.units
                    for device, units in zip(problem.devices, shares, strict=True)
                },
                "over the CPU": cpu / cost,
            }
        )
    return rows


def network_row(run: NetworkRun) -> Row:
    """Totals, communication in full, and against the CPU alone and the rivals with the same limits."""
    problem = run.problem
    rows = layer_rows(run)
    ups = [number(row, "over the CPU") for row in rows]
    seconds, joules = totals(problem, run.shares)
    cpu_s, cpu_j = totals(problem, alone(problem, "cpu"))
    as_printed = run.setup == SETUPS[False] and run.title != "latency, in parallel"
    row: dict[str, object] = {
        "network": run.network,
        "least": run.title,
        "limits": run.setup,
        "first layer, FPGA %": rows[0]["fpga %"],
        "last layer, GPU %": rows[-1]["gpu %"],
        "layers over the CPU": f"{min(ups):.1f} - {max(ups):.1f}",
        "paper": PRINTED[run.network] if as_printed else None,
        "median": median(ups),
        "ms": 1e3 * seconds,
        "mJ": 1e3 * joules,
        "CPU alone ms": 1e3 * cpu_s,
        "CPU alone mJ": 1e3 * cpu_j,
    }
    for name in RIVALS:
        rival = split_by(name, problem)
        its = None if rival.steps is None else totals(problem, [step.shares for step in rival.steps])
        row[f"ms over {name}"] = None if its is None else f"{seconds / its[0] - 1:+.0%}"
        row[f"mJ over {name}"] = None if its is None else f"{joules / its[1] - 1:+.0%}"
    row |= {"over the best whole shares": _over_best(run, run.shares)}
    row |= {"steps": len(run.found.steps), "wall s": run.wall_s}
    if run.again is not None and run.again.rounded is not None:
        its = totals(problem, run.again.rounded.shares)
        row |= {"again: ms": 1e3 * its[0], "again: mJ": 1e3 * its[1]}
        row |= {"again: over the best whole shares": _over_best(run, run.again.rounded.shares)}
        row |= {"again: rounds": run.again.rounds, "again: wall s": run.again_wall_s}
    return row


def _over_best(run: NetworkRun, shares: Sequence[Sequence[int]]) -> str | None:
    """Objective over the best split's, minus 1; None: limits are for all layers, so it is no sum over layers."""
    if run.setup == SETUPS[True]:
        return None
    found = [split_layer(run.problem, layer) for layer in run.problem.layers]
    best = sum(its[1].value for its in found if its is not None)
    value = sum(layer_cost(run.problem, layer, its) for layer, its in zip(run.problem.layers, shares, strict=True))
    return f"{value / best - 1:+.1%}"


def k_rows(network: str) -> list[Row]:
    """Eq. 14 for each k, in sequence: its own objective, the full cost of the same shares, and the outcome."""
    rows: list[Row] = []
    for k in SWEPT:
        run = network_run(network, "latency", "sequence", one_for_all=False, k=k)
        rows.append(
            {
                "network": network,
                "k": "in full" if k is None else k,
                "outcome": run.found.outcome.value,
                "steps": len(run.found.steps),
                "wall s": run.wall_s,
                "objective ms": 1e3 * run.found.steps[-1].cost,
                "in full ms": 1e3 * totals(run.problem, run.shares)[0],
            }
        )
    return rows
