"""The board's numbers fitted to the paper's Table 2, and every cell of it beside ours, by the model.

Eleven cells are fitted by eight numbers, which they do not determine (`held`): beside each cell is its range over all
sets of numbers that satisfy them. The descriptions have one set, rounded, from which our cells are computed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.partitiontuner.board import (
    MODELLED,
    NETWORKS,
    SCHEMES,
    Cell,
    board_costs,
    board_devices,
    cell,
    sunk_path,
)
from benchmarks.partitiontuner.held import Board, number_sets, reach_rows
from benchmarks.partitiontuner.numbers import FITTED, Numbers, fitted, numbers_of, with_numbers
from benchmarks.report.report import Report
from benchmarks.report.results import RESULTS, Row, read_csv
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.planner.strategies import SchemeName

_TO: Final[Mapping[str, str]] = {
    "mac_s": "CPU alone, all but ResNeXt-50",
    "grouped_mac_s": "CPU alone, ResNeXt-50",
    "weight_s": "CPU alone, all but ResNeXt-50",
    "lrn_s": "CPU alone, all but ResNeXt-50",
    "element_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
    "npu_mac_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
    "npu_call_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
    "npu_byte_s": "TypeSeq and OpSeq, ResNet-50 and SqueezeNet",
}
"""The cells that each number is fitted to."""
SETS: Final = 100


def partitiontuner_fit() -> None:
    """Fit the PartitionTuner paper's board, and lay its Table 2 beside ours; on paper."""
    report = Report("partitiontuner_fit", {"costs": MODELLED})
    devices = board_devices()
    with tempfile.TemporaryDirectory() as folder:
        graphs = {network: read_model(sunk_path(network, Path(folder))).graph for network in NETWORKS}
    fit, board = fitted(devices, graphs), Board(devices, graphs)
    report.step("other numbers that hold the same cells")
    sets = number_sets(board, SETS, random.Random(0))
    numbers, reach = list(number_rows(asdict(numbers_of(devices)), asdict(fit), sets)), list(reach_rows(board))
    report.keep(f"Numbers, in seconds ({MODELLED})", numbers, name="partitiontuner_fit_numbers")
    title = f"How near one set of numbers comes to the CPU alone and TypeSeq ({MODELLED})"
    report.keep(title, reach, name="partitiontuner_fit_reach")
    report.show(f"Table 2 ({MODELLED})", list(cell_rows(graphs, devices, sets)))
    report.save([asdict(number_set) for number_set in sets], "partitiontuner_fit_sets")


def kept_sets() -> list[Numbers]:
    """The sets that were found last."""
    path = RESULTS / "partitiontuner_fit_sets.csv"
    if not path.is_file():
        return []
    return [Numbers(**{name: float(figure) for name, figure in row.items()}) for row in read_csv(path)]


def cells_with(graph: Graph, devices: tuple[Device, Device], numbers: Numbers) -> Mapping[SchemeName, Cell]:
    costs = board_costs(graph, with_numbers(devices, numbers))
    return {scheme: cell(graph, scheme, costs) for scheme in SCHEMES}


def number_rows(written: Mapping[str, float], fit: Mapping[str, float], sets: Sequence[Numbers]) -> Iterator[Row]:
    for name, in_file in written.items():
        others = [getattr(number_set, name) for number_set in sets]
        yield {
            "number": name,
            "in the file": in_file,
            "fit": fit[name],
            "least that holds": min(others, default=None),
            "most": max(others, default=None),
            "fitted to": _TO[name],
        }


def cell_rows(graphs: Mapping[str, Graph], devices: tuple[Device, Device], sets: Sequence[Numbers]) -> Iterator[Row]:
    """Rows of one cell of Table 2 each, in milliseconds, with its range over all sets of numbers."""
    for network, graph in graphs.items():
        costs, others = board_costs(graph, devices), [cells_with(graph, devices, number_set) for number_set in sets]
        for (scheme, title), paper in zip(SCHEMES.items(), NETWORKS[network].ms, strict=True):
            ours = cell(graph, scheme, costs).ms
            over = [cells[scheme].ms for cells in others]
            yield {
                "network": NETWORKS[network].title,
                "scheme": title,
                "paper ms": paper,
                "ours ms": ours,
                "least over all number sets": min(over, default=None),
                "most": max(over, default=None),
                "error": f"{ours / paper - 1:+.1%}",
                "cell": "fitted" if network in FITTED.get(scheme, ()) else "predicted",
            }
