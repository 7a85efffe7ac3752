"""The GP paper's experiments, on devices described like its board: Figures 3 to 5, 7 to 9 and its rows of Table 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Final

import numpy as np

from benchmarks.report.page import Claims, Statement, each, holds, table, words
from benchmarks.report.report import Report
from benchmarks.report.results import Row, number
from benchmarks.splits.networks import CASES, NETWORKS, alone, board_devices, board_problem, totals
from shisha_rt.papers.gp.geometric.geometric import FULL_NETWORK_K, GeometricSplit, TighteningRule, geometric_split
from shisha_rt.papers.gp.methods import RivalName, split_by
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import Formula, SplitDevice, SplitLayer, SplitProblem, layer_cost
from shisha_rt.papers.gp.shared import split_layer
from shisha_rt.planner.strategies import Execution, SplitObjective

# --- figures 3 to 5, 7 and 8: one layer -------------------------------------------------------------------------------


LAYER: Final = SplitLayer("conv", {"H": 112.0, "W": 112.0, "C": 16.0, "k": 1.0, "N": 32.0, "s": 1.0}, "C")
"""The layer of Figure 3."""
KS: Final = (1, 2, 5, 10, 17, 50, 100, 200, 1000)
_RUNS: Final = 5


def trace_rows() -> Iterator[Row]:
    """Figure 3 on two and Figure 5 on three of the board's devices; and with the ratio of costs implied by the paper's
    14 to 2. Each by GP, condensed again, and the best whole shares.
    """
    board = board_devices()
    fpga, gpu = _proportional("fpga", 1e-6), _proportional("gpu", 7e-6)
    yield _trace_row("3: FPGA and GPU of the board", (board["fpga"], board["gpu"]))
    yield _trace_row("3: a GPU of 7 times the FPGA's cost", (fpga, gpu))
    yield _trace_row("5: CPU, GPU and FPGA of the board", (board["cpu"], board["gpu"], board["fpga"]))
    yield _trace_row("5: costs 14, 7 and 1", (_proportional("cpu", 14e-6), gpu, fpga))


def _trace_row(title: str, devices: tuple[SplitDevice, ...]) -> Row:
    problem, wall_s = SplitProblem((LAYER,), devices), math.inf
    for _ in range(_RUNS):
        started = perf_counter()
        split = geometric_split(problem)
        wall_s = min(wall_s, perf_counter() - started)
    again, best = geometric_split(problem, again=True), split_layer(problem, LAYER)
    assert best is not None
    answers = {"GP": split, "condensed again": again}
    costs = {
        name: layer_cost(problem, LAYER, answer.rounded.shares[0])
        for name, answer in answers.items()
        if answer.rounded is not None
    }
    return {
        "figure": title,
        "devices": "/".join(device.name for device in devices),
        "steps": len(split.steps),
        "alpha": f"{split.steps[-1].alpha[0]:.3g}",
        "wall ms": 1e3 * wall_s,
        **{f"{name}: shares": _shares(answer) for name, answer in answers.items()},
        "rounds": again.rounds,
        "best whole shares": "/".join(map(str, best[0])),
        **{f"{name} us": 1e6 * cost for name, cost in costs.items()},
        "best us": 1e6 * best[1].value,
    }


def weights_rows() -> list[Row]:
    """Figure 8: norms of S - H on [0, 1], where H is 0 except at 1."""
    return [
        {
            "k": k,
            "L1": 1 / (2 * k + 1),
            "L2": 1 / math.sqrt(4 * k + 1),
            "L2 of 10 points": float(np.linalg.norm(np.linspace(0, 1, 10, endpoint=False) ** (2 * k))),
            "L2 of 1000 points": float(np.linalg.norm(np.linspace(0, 1, 1000, endpoint=False) ** (2 * k))),
            "S(0.98)": 0.98 ** (2 * k),
            "paper": 0.12 if k == 100 else None,
        }
        for k in KS
    ]


def _proportional(name: str, each_s: float) -> SplitDevice:
    return SplitDevice(name, (Formula(Posynomial((Monomial(each_s, {"C": 1.0}),))),))


def _shares(split: GeometricSplit) -> str:
    if split.real is None or split.rounded is None:
        return str(split.reason)
    whole = "/".join(map(str, split.rounded.shares[0]))
    return f"{'/'.join(f'{units:.2f}' for units in split.real[0])} -> {whole}"


# --- networks ---------------------------------------------------------------------------------------------------------


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
    split: GeometricSplit
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
    traces, weights, networks = list(trace_rows()), weights_rows(), list(map(network_row, runs))
    sweep = [row for network in NETWORKS for row in k_rows(network)]
    stated = [statement.row() for statement in statements(traces, weights, networks)]
    report.save(stated, "splits_paper_statements")
    sections: dict[str, Sequence[Row] | str] = {STATED: stated}
    head, notes = words(__file__, "paper")
    for (title, note), rows in zip(notes.items(), (traces, weights, networks, sweep), strict=True):
        report.show(title, rows)
        sections[title] = f"{table(rows)}\n\n{note}"
    report.show(STATED, stated)
    report.save_page(head, sections)


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
    split = geometric_split(problem, k)
    wall_s = perf_counter() - started
    if split.rounded is None:
        raise RuntimeError(f"{network}: {split.outcome}: {split.reason}")
    return NetworkRun(network, SETUPS[one_for_all], problem, k, split, split.rounded.shares, wall_s)


def condensed_again(run: NetworkRun) -> NetworkRun:
    """The run with the result of condensing again; steps of alpha are four times as long."""
    started = perf_counter()
    again = geometric_split(run.problem, run.k, again=True, rule=TighteningRule(step=1 / 16))
    return replace(run, again=again, again_wall_s=perf_counter() - started)


def layer_rows(run: NetworkRun) -> Iterator[Row]:
    """Figure 9: each layer's filters by device, and how much faster than the CPU alone, communication in full."""
    problem = run.problem
    for layer, shares, on_cpu in zip(problem.layers, run.shares, alone(problem, "cpu"), strict=True):
        cost, cpu = layer_cost(problem, layer, shares), layer_cost(problem, layer, on_cpu)
        yield {
            "layer": layer.name,
            **{name: layer.features[name] for name in ("C", "N")},
            **{
                f"{device.name} %": 100 * units / layer.units
                for device, units in zip(problem.devices, shares, strict=True)
            },
            "over the CPU": cpu / cost,
        }


def network_row(run: NetworkRun) -> Row:
    """Totals, communication in full, and against the CPU alone and the rivals with the same limits."""
    problem = run.problem
    rows = list(layer_rows(run))
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
        rival_totals = None if rival.steps is None else totals(problem, [step.shares for step in rival.steps])
        row[f"ms over {name}"] = None if rival_totals is None else f"{seconds / rival_totals[0] - 1:+.0%}"
        row[f"mJ over {name}"] = None if rival_totals is None else f"{joules / rival_totals[1] - 1:+.0%}"
    row |= {"over the best whole shares": _over_best(run, run.shares)}
    row |= {"steps": len(run.split.steps), "wall s": run.wall_s}
    if run.again is not None and run.again.rounded is not None:
        again_totals = totals(problem, run.again.rounded.shares)
        row |= {"again: ms": 1e3 * again_totals[0], "again: mJ": 1e3 * again_totals[1]}
        row |= {"again: over the best whole shares": _over_best(run, run.again.rounded.shares)}
        row |= {"again: rounds": run.again.rounds, "again: wall s": run.again_wall_s}
    return row


def _over_best(run: NetworkRun, shares: Sequence[Sequence[int]]) -> str | None:
    """Objective over the best split's, minus 1; None: limits are for all layers, so it is no sum over layers."""
    if run.setup == SETUPS[True]:
        return None
    exact = [split_layer(run.problem, layer) for layer in run.problem.layers]
    best = sum(split[1].value for split in exact if split is not None)
    value = sum(
        layer_cost(run.problem, layer, layer_shares)
        for layer, layer_shares in zip(run.problem.layers, shares, strict=True)
    )
    return f"{value / best - 1:+.1%}"


def k_rows(network: str) -> Iterator[Row]:
    """Eq. 14 for each k, in sequence: its own objective, the full cost of the same shares, and the outcome."""
    for k in SWEPT:
        run = network_run(network, "latency", "sequence", one_for_all=False, k=k)
        yield {
            "network": network,
            "k": "in full" if k is None else k,
            "outcome": run.split.outcome.value,
            "steps": len(run.split.steps),
            "wall s": run.wall_s,
            "objective ms": 1e3 * run.split.steps[-1].cost,
            "in full ms": 1e3 * totals(run.problem, run.shares)[0],
        }


# --- the paper's statements -------------------------------------------------------------------------------------------


NEAR: Final = 0.15
_LATENCY: Final = "latency, in sequence"
_OWN: Final = "one FPGA a layer"
_COUPLE_MS: Final = 200.0
_stated: Final = Claims.beside(__file__, "ours, emulated").stated


def statements(singles: Sequence[Row], weights: Sequence[Row], networks: Sequence[Row]) -> list[Statement]:
    """Statements from the rows of Figures 3 to 5, of Figure 8, and of Figure 9 and Table 1."""
    return [*_one_layer(singles), _weight(weights), *_networks(networks), *_against_balanced(networks)]


def _one_layer(rows: Sequence[Row]) -> Iterator[Statement]:
    board, implied, *_ = rows
    yield _stated("steps", f"{board['steps']} on the board, {implied['steps']} with its ratio of costs", "yes")
    yield _stated("channels", f"{implied['GP: shares']} with a GPU of 7 times the FPGA's cost", "yes")
    as_described = str(board["GP: shares"])
    yield _stated("channels, board", f"FPGA to GPU {as_described}", holds(as_described.endswith("14/2")))
    walls = [number(row, "wall ms") for row in rows]
    ours = f"{min(walls):.0f} to {max(walls):.0f} ms on this host"
    yield _stated("wall time", ours, each(wall < _COUPLE_MS for wall in walls))


def _weight(rows: Sequence[Row]) -> Statement:
    (row,) = (row for row in rows if row["paper"])
    ours, paper = number(row, "L2"), number(row, "paper")
    is_near = abs(ours / paper - 1) <= NEAR
    return _stated("step function", f"L2 {ours:.3f}", holds(is_near), k=row["k"], paper=paper)


def _networks(rows: Sequence[Row]) -> Iterator[Statement]:
    own = [row for row in rows if (row["least"], row["limits"]) == (_LATENCY, _OWN)]
    first, last = ({row["network"]: number(row, column) for row in own} for column in _ENDS)
    yield _stated("first layers", _listed(first, "%"), each(share > _MOSTLY for share in first.values()))
    yield _stated("last layers", _listed(last, "%"), each(abs(share / _LAST - 1) <= NEAR for share in last.values()))
    spans = {row["network"]: [float(end) for end in str(row["layers over the CPU"]).split(" - ")] for row in own}
    papers = {row["network"]: [float(end) for end in str(row["paper"]).split(" - ")] for row in own}
    for end, key in enumerate(("least speed-up", "greatest speed-up")):
        ours = {name: span[end] for name, span in spans.items()}
        near = (abs(ours[name] / ends[end] - 1) <= NEAR for name, ends in papers.items())
        paper = ", ".join(f"{name} {ends[end]}" for name, ends in papers.items())
        yield _stated(key, _listed(ours, ""), each(near), paper=paper)


_ENDS: Final = ("first layer, FPGA %", "last layer, GPU %")
_LAST: Final = 69.0
_MOSTLY: Final = 80.0


def _against_balanced(rows: Sequence[Row]) -> Iterator[Statement]:
    for key, least, column, paper in (
        ("quicker", _LATENCY, "ms over balanced", 20.0),
        ("less energy", "energy", "mJ over balanced", 15.0),
    ):
        gains = [-float(str(row[column]).rstrip("%")) for row in rows if row["least"] == least]
        ours = f"{min(gains):.0f} to {max(gains):.0f}% over {len(gains)} cases"
        yield _stated(key, ours, each(abs(gain / paper - 1) <= NEAR for gain in gains), paper=paper)


def _listed(figures: dict[object, float], unit: str) -> str:
    return ", ".join(f"{name} {figure:.1f}{unit}" for name, figure in figures.items())
