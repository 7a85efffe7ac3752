"""Geometric programs against the exact integer split, by models: each layer of AlexNet, VGG-16 and ResNet-18.

On the devices of the GP paper's board, with filters shared, and communication in full. In three cases: latency with
devices in sequence (the paper's sum), latency with parallel devices, and energy. AlexNet's grouped convolutions are
taken as one group, as the features have no groups. A second table has whole networks, with fused splits and rivals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Annotated, Final, TypeVar

import typer

from benchmarks.report.page import table, words
from benchmarks.report.report import Report
from benchmarks.report.results import Row, written
from benchmarks.splits.networks import BOARD, CASES, NETWORKS
from shisha_rt.machine.config.device_files import devices_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.fused import NetworkSplit, fused_split, split_network
from shisha_rt.papers.gp.geometric.geometric import FULL_NETWORK_K, GeometricSplit, geometric_split
from shisha_rt.papers.gp.geometric.rounding import best_rounding
from shisha_rt.papers.gp.methods import RivalName, split_by
from shisha_rt.papers.gp.of_device import split_device
from shisha_rt.papers.gp.of_graph import ENGINE_BLOCK, split_layer_of
from shisha_rt.papers.gp.problem import Shares, SplitLayer, SplitProblem, layer_cost
from shisha_rt.papers.gp.shared import split_layer
from shisha_rt.planner.shards.integer import BlockShares
from shisha_rt.planner.strategies import Execution, SplitObjective

RIVALS: Final[tuple[RivalName, ...]] = ("proportional", "balanced", "greedy", "step")
EXACT: Final = "integer"
GEOMETRIC: Final = "geometric"
AGAIN: Final = "again"
_SAME: Final = 1e-9
_SINGLY: Final = 1000
"""Most filters for which shares of single filters, the paper's unit, are tried, too."""
_REPEATED: Final = 5

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found:
    """One layer in one case. `seconds`: solving time of each method; `gaps`: its value over the exact one's, minus 1;
    None: it found no shares.
    """

    network: str
    case: str
    layer: SplitLayer
    exact: BlockShares
    geometric: Sequence[int] | None
    seconds: Mapping[str, float]
    gaps: Mapping[str, float | None]


# --- problems ---------------------------------------------------------------------------------------------------------


def board_problem(
    layers: Sequence[SplitLayer], objective: SplitObjective, execution: Execution, *, one_for_all: bool = False
) -> SplitProblem:
    machine = load_machine(BOARD)
    devices = [device for place in machine.places for device in devices_of(machine, place)]
    split_devices = tuple(split_device(device, objective, one_for_all) for device in devices)
    return SplitProblem(tuple(layers), split_devices, objective, execution)


def heavy_layers(network: str) -> list[SplitLayer]:
    """The heavy layers of a network, in blocks of 16 filters."""
    graph = in_one_group(read_model(resolve_model(f"zoo:{network}", print)).graph)
    layers = (split_layer_of(graph, layer, "N") for layer in group_layers(graph))
    return [layer for layer in layers if isinstance(layer, SplitLayer)]


def in_one_group(graph: Graph) -> Graph:
    return replace(
        graph,
        operators=tuple(
            replace(operator, attributes={**operator.attributes, "group": 1}) for operator in graph.operators
        ),
    )


# --- each layer by itself ---------------------------------------------------------------------------------------------


def layers_of(network: str) -> Iterator[Found]:
    """Results of each layer, in blocks of 16 and of 1; the programs are the same, and solved once."""
    for layer in heavy_layers(network):
        for case, (objective, execution) in CASES.items():
            problem = board_problem([layer], objective, execution)
            plain = _timed(partial(geometric_split, problem))
            again = _timed(partial(geometric_split, problem, again=True))
            yield layer_found(network, case, problem, plain, again)
            if layer.units <= _SINGLY:
                yield layer_found(
                    network, case, board_problem([replace(layer, block=1)], objective, execution), plain, again
                )


_Timed = tuple[GeometricSplit, float]


def layer_found(network: str, case: str, problem: SplitProblem, plain: _Timed, again: _Timed) -> Found:
    """Results of one layer. Raises RuntimeError if a method is better than the exact split."""
    (layer,) = problem.layers
    answer, exact_s = _timed(partial(split_layer, problem, layer), _REPEATED)
    assert answer is not None, "CPU and GPU have no limits"
    rounded = {name: _rounded(problem, split) for name, (split, _) in ((GEOMETRIC, plain), (AGAIN, again))}
    values = {name: solution and solution[1] for name, solution in rounded.items()}
    values |= {name: _value(split_by(name, problem)) for name in RIVALS}
    exact = answer[1].value
    if any(value is not None and value < exact * (1 - _SAME) for value in values.values()):
        raise RuntimeError(f"{network}, {layer.name}, {case}: {values} where {exact} is said to be the least")
    return Found(
        network,
        case,
        layer,
        answer[1],
        (shares := rounded[GEOMETRIC]) and shares[0][0],
        {EXACT: exact_s, GEOMETRIC: plain[1], AGAIN: again[1]},
        {name: None if value is None else max(0.0, value / exact - 1) for name, value in values.items()},
    )


def _timed(run: Callable[[], _T], times: int = 1) -> tuple[_T, float]:
    """The result of `run`, and the median of its seconds."""
    seconds = []
    for _ in range(times):
        started = perf_counter()
        result = run()
        seconds.append(perf_counter() - started)
    return result, median(seconds)


def _rounded(problem: SplitProblem, split: GeometricSplit) -> tuple[Shares, float] | None:
    """Cost of a split rounded to the blocks of this problem's layers; None: it breaks a limit, or there is no split."""
    rounded = None if split.real is None else best_rounding(problem, split.real)
    if rounded is None or rounded.faults:
        return None
    costs = zip(problem.layers, rounded.shares, strict=True)
    return rounded.shares, math.fsum(layer_cost(problem, layer, shares) for layer, shares in costs)


def _value(split: NetworkSplit) -> float | None:
    return None if split.steps is None else split.value


def summaries(results: Sequence[Found]) -> Iterator[Row]:
    """A row for each case and block; the worst layer of GP by name."""
    for block in (ENGINE_BLOCK, 1):
        for case in CASES:
            own = [result for result in results if result.case == case and result.layer.block == block]
            yield {"case": case, "in blocks of": block, **_summary(own)}


def _summary(results: Sequence[Found]) -> Row:
    row: dict[str, object] = {"layers": len(results), "split at all": sum(result.exact.is_split for result in results)}
    for name in results[0].gaps:
        gaps = [gap for result in results if (gap := result.gaps[name]) is not None]
        row[f"{name}: median, worst"] = f"{median(gaps):.2%}, {max(gaps):.1%}"
        if len(gaps) < len(results):
            row[f"{name}: median, worst"] = f"{row[f'{name}: median, worst']} of {len(gaps)}"
    worst = max(results, key=lambda result: result.gaps[GEOMETRIC] or 0.0)
    row["geometric's worst"] = f"{worst.network} {worst.layer.name}"
    for name in (EXACT, GEOMETRIC, AGAIN):
        seconds = [result.seconds[name] for result in results]
        row[f"{name}, ms: median, worst"] = f"{1e3 * median(seconds):.3g}, {1e3 * max(seconds):.3g}"
    return row


# --- whole networks ---------------------------------------------------------------------------------------------------


def network_rows(network: str) -> Iterator[Row]:
    """Rows of a network in blocks of 16; limits of the FPGA for each layer (Setup 2), then for all (Eqs. 10 and 14)."""
    for one_for_all in (False, True):
        for case, (objective, execution) in CASES.items():
            problem = board_problem(heavy_layers(network), objective, execution, one_for_all=one_for_all)
            yield {
                "network": network,
                "case": f"{case}, {'mJ' if objective == 'energy' else 'ms'}",
                "limits": "of all layers" if one_for_all else "of each layer",
                **_proven("integer", partial(split_network, problem)),
                **_proven("fused", partial(fused_split, problem)),
                **{name: None if value is None else 1e3 * value for name, value in _others(problem).items()},
            }


def _proven(name: str, run: Callable[[], NetworkSplit]) -> Row:
    """Solve by a method; state the bound if the split is not proven to be the least."""
    split, seconds = _timed(run)
    bound = split.lower_bound
    return {
        name: 1e3 * split.value,
        f"{name}: bound": "proven" if split.outcome is Outcome.OPTIMAL or bound is None else written(1e3 * bound),
        f"{name}: solved in ms": 1e3 * seconds,
    }


def _others(problem: SplitProblem) -> Mapping[str, float | None]:
    programs = {"Eq. 10": None, f"Eq. 14, k = {FULL_NETWORK_K}": FULL_NETWORK_K}
    rounded = {f"geometric ({name})": _rounded(problem, geometric_split(problem, k)) for name, k in programs.items()}
    return {
        **{name: solution and solution[1] for name, solution in rounded.items()},
        **{name: _value(split_by(name, problem)) for name in (*RIVALS, "communication")},
    }


def splits_gap(
    networks: Annotated[str, typer.Option(help="Of the zoo, with commas between.")] = ",".join(NETWORKS.values()),
) -> None:
    """Geometric programs and other rivals against the exact integer split, for each layer and whole networks."""
    report = Report("splits_gap")
    results: list[Found] = []
    wholes: list[Row] = []
    for network in networks.split(","):
        report.step(network)
        results += layers_of(network)
        wholes += network_rows(network)
    summary = list(summaries(results))
    report.show("Over the exact split, each layer by itself", summary)
    report.show("Whole networks", wholes)
    head, notes = words(__file__, "gap")
    tables = zip(notes.items(), (summary, wholes), strict=True)
    sections = {title: f"{note}\n\n{table(rows)}" for (title, note), rows in tables}
    report.save_page(head, sections)
