"""The board's numbers fitted to the paper's Table 2, and every cell of Tables 2 to 4 beside ours, by the model.

Eleven cells are fitted by eight numbers, which they do not determine (`held`): beside each cell is its range over all
sets of numbers that satisfy them. The descriptions have one set, rounded, from which our cells are computed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.partitiontuner.board import MODELLED, Cell, board_costs, board_devices, cell
from benchmarks.partitiontuner.held import Board, number_sets, reach_rows
from benchmarks.partitiontuner.numbers import FITTED, Numbers, fitted, numbers_of, with_numbers
from benchmarks.partitiontuner.published import NETWORKS, SCHEMES
from benchmarks.partitiontuner.sunk import sunk_path
from benchmarks.report.facts import facts
from benchmarks.report.results import RESULTS, Row, read_csv, save_csv, show
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from shisha_rt.planner.strategies import SchemeName

_TO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "mac_s": "CPU alone, all but ResNeXt-50",
        "grouped_mac_s": "CPU alone, ResNeXt-50",
        "weight_s": "CPU alone, all but ResNeXt-50",
        "lrn_s": "CPU alone, all but ResNeXt-50",
        "element_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
        "npu_mac_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
        "npu_call_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
        "npu_byte_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
    }
)
"""The cells that each number is fitted to."""
_NEAR: Final = 0.15
_REASON: Final = (
    "the fit takes the CPU alone of all networks for right, above all the furthest; fitted to TypeSeq as well, one set "
    "of numbers comes nearer: partitiontuner_fit_reach.csv"
)
"""The reason for cells that differ by more than `_NEAR`."""
SETS: Final = 100
SETS_FILE: Final = "partitiontuner_fit_sets"


@dataclass(frozen=True, slots=True)
class Result:
    """Cells of a network for the paper's schemes and `forkjoin`: with Relus sunk, as by the paper's compiler, and as in
    the file.

    `over`: with Relus sunk, for the paper's schemes, by each set of numbers.
    """

    network: str
    sunk: Mapping[SchemeName, Cell]
    plain: Mapping[SchemeName, Cell]
    over: Sequence[Mapping[SchemeName, Cell]] = ()


def partitiontuner_fit() -> None:
    """Fit the PartitionTuner paper's board, and lay its Tables 2 to 4 beside ours; on paper."""
    about = facts("partitiontuner_fit") | {"costs": MODELLED}
    devices = board_devices()
    with tempfile.TemporaryDirectory() as folder:
        graphs = {}
        for network, its in NETWORKS.items():
            print(f"partitiontuner_fit: reading {its.title} ...", flush=True)
            graphs[network] = (
                read_model(sunk_path(network, Path(folder))).graph,
                read_model(zoo_path(network)).graph,
            )
    found = fitted(devices, {network: sunk for network, (sunk, _) in graphs.items()})
    board = Board(devices, {network: sunk for network, (sunk, _) in graphs.items()})
    print("partitiontuner_fit: other numbers that hold the same cells ...", flush=True)
    sets = number_sets(board, SETS, random.Random(0))
    results = [_result(network, *its, devices, sets) for network, its in graphs.items()]
    tables: dict[str, tuple[str, Sequence[Row]]] = {
        "numbers": ("Numbers, in seconds", list(number_rows(asdict(numbers_of(devices)), asdict(found), sets))),
        "reach": ("How near one set of numbers comes to the CPU alone and TypeSeq", reach_rows(board)),
        "cells": ("Table 2, and the schedule for the makespan", list(cell_rows(results))),
        "counts": ("Tables 3 and 4", list(count_rows(results))),
    }
    for name, (title, rows) in tables.items():
        show(f"{title} ({MODELLED})", rows)
        print(f"written to {save_csv(f'partitiontuner_fit_{name}', rows, about)}")
    print(f"written to {save_csv(SETS_FILE, [asdict(one) for one in sets], about)}")


def kept_sets() -> list[Numbers]:
    """The sets that were found last."""
    path = RESULTS / f"{SETS_FILE}.csv"
    if not path.is_file():
        return []
    return [Numbers(**{name: float(its) for name, its in row.items()}) for row in read_csv(path)]


def cells_with(graph: Graph, devices: tuple[Device, Device], numbers: Numbers) -> Mapping[SchemeName, Cell]:
    """Cells for the paper's schemes."""
    costs = board_costs(graph, with_numbers(devices, numbers))
    return {scheme: cell(graph, scheme, costs) for scheme in SCHEMES}


def _result(network: str, sunk: Graph, plain: Graph, devices: tuple[Device, Device], sets: Sequence[Numbers]) -> Result:
    schemes: tuple[SchemeName, ...] = (*SCHEMES, "forkjoin")

    def cells(graph: Graph) -> Mapping[SchemeName, Cell]:
        costs = board_costs(graph, devices)
        return {scheme: cell(graph, scheme, costs) for scheme in schemes}

    return Result(network, cells(sunk), cells(plain), [cells_with(sunk, devices, one) for one in sets])


def number_rows(written: Mapping[str, float], found: Mapping[str, float], sets: Sequence[Numbers]) -> Iterator[Row]:
    for name, its in written.items():
        others = [getattr(one, name) for one in sets]
        yield {
            "number": name,
            "in the file": its,
            "fit": found[name],
            "least that holds": min(others, default=None),
            "most": max(others, default=None),
            "fitted to": _TO[name],
        }


def cell_rows(results: Sequence[Result]) -> Iterator[Row]:
    """Rows of one cell each, in milliseconds. The paper has no cell for `forkjoin`."""
    for result in results:
        published = NETWORKS[result.network]
        paper_ms = dict(zip(SCHEMES, published.ms, strict=True))
        for scheme, its in result.sunk.items():
            paper = paper_ms.get(scheme)
            off = None if paper is None else its.ms / paper - 1
            over = [cells[scheme].ms for cells in result.over if scheme in cells]
            yield {
                "network": published.title,
                "scheme": SCHEMES.get(scheme, scheme),
                "paper ms": paper,
                "ours ms": its.ms,
                "least over all number sets": min(over, default=None),
                "most": max(over, default=None),
                "error": None if off is None else f"{off:+.1%}",
                "cell": "ours" if off is None else "fitted" if _is_fitted(result.network, scheme) else "predicted",
                "ours ms, Relus as in the file": result.plain[scheme].ms,
                "likely reason": _REASON if off is not None and abs(off) > _NEAR else "",
            }


def _is_fitted(network: str, scheme: SchemeName) -> bool:
    return network in FITTED.get(scheme, ())


def count_rows(results: Sequence[Result]) -> Iterator[Row]:
    """Counts for TypeSeq, OpSeq and PartitionTuner, as paper / ours / ours with Relus as in the file."""
    schemes: tuple[SchemeName, ...] = ("typeseq", "opseq", "partitiontuner")
    for result in results:
        its = NETWORKS[result.network]
        per_scheme: dict[str, tuple[tuple[int, int, int], str]] = {
            "Conv on NPU": (its.convs_on_npu, "convs_on_npu"),
            "Relu on NPU": (its.relus_on_npu, "relus_on_npu"),
            "partitions": (its.partitions, "partitions"),
        }
        single = {
            "parallel branches": (its.parallel_branches, "parallel_branches"),
            "partitions in parallel": (its.overlapping, "overlapping"),
        }
        row: dict[str, object] = {"network": its.title}
        for name, (paper, field) in per_scheme.items():
            for index, scheme in enumerate(schemes):
                ours = (getattr(form[scheme], field) for form in (result.sunk, result.plain))
                row[f"{name}, {SCHEMES[scheme]}"] = " / ".join(map(str, (paper[index], *ours)))
        for name, (number, field) in single.items():
            ours = (getattr(form["partitiontuner"], field) for form in (result.sunk, result.plain))
            row[name] = " / ".join(map(str, (number, *ours)))
        yield row
