"""The board's numbers fitted to the paper's Table 2, and every cell of Tables 2 to 4 beside ours, on paper.

Eleven cells fix eight numbers; all others are predictions. The numbers stand in the descriptions, rounded, and it is
these that cells are computed from.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.partitiontuner.board import MODELLED, Cell, board_costs, board_devices, cell
from benchmarks.partitiontuner.numbers import FITTED, fitted, numbers_of
from benchmarks.partitiontuner.published import NETWORKS, SCHEMES
from benchmarks.partitiontuner.sunk import sunk_path
from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
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
"""What each number is fitted to."""
_NEAR: Final = 0.15
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "inception_v1": (
            "the paper's cells disagree: at the price of an LRN element that ZFNet and AlexNet alone on the CPU want, "
            "GoogLeNet's two LRNs take longer than all of it does under TypeSeq"
        ),
        "zfnet512": "one price for a weight and one for an LRN element do not cover AlexNet and ZFNet alike",
    }
)
"""Of networks whose times are further off than `_NEAR`."""


@dataclass(frozen=True, slots=True)
class Result:
    """A network under all schemes of the paper and `forkjoin`: Relus sunk as in its compiler, and as in the file."""

    network: str
    sunk: Mapping[SchemeName, Cell]
    plain: Mapping[SchemeName, Cell]


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
    results = [_result(network, *its) for network, its in graphs.items()]
    tables: dict[str, tuple[str, Sequence[Row]]] = {
        "numbers": ("Numbers, in seconds", list(number_rows(asdict(numbers_of(devices)), asdict(found)))),
        "cells": ("Table 2, and the schedule for the makespan", list(cell_rows(results))),
        "counts": ("Tables 3 and 4", list(count_rows(results))),
        "statements": ("The paper's statements and ours", list(statement_rows(results))),
    }
    for name, (title, rows) in tables.items():
        show(f"{title} ({MODELLED})", rows)
        print(f"written to {save_csv(f'partitiontuner_fit_{name}', rows, about)}")


def _result(network: str, sunk: Graph, plain: Graph) -> Result:
    schemes: tuple[SchemeName, ...] = (*SCHEMES, "forkjoin")
    cells = []
    for graph in (sunk, plain):
        costs = board_costs(graph, board_devices())
        cells.append({scheme: cell(graph, scheme, costs) for scheme in schemes})
    return Result(network, *cells)


def number_rows(written: Mapping[str, float], found: Mapping[str, float]) -> Iterator[Row]:
    for name, its in written.items():
        yield {"number": name, "in the file": its, "fit": found[name], "fitted to": _TO[name]}


def cell_rows(results: Sequence[Result]) -> Iterator[Row]:
    """Milliseconds, one cell a row. `forkjoin` has no cell in the paper."""
    for result in results:
        published = NETWORKS[result.network]
        paper_ms = dict(zip(SCHEMES, published.ms, strict=True))
        for scheme, its in result.sunk.items():
            paper = paper_ms.get(scheme)
            off = None if paper is None else its.ms / paper - 1
            yield {
                "network": published.title,
                "scheme": SCHEMES.get(scheme, scheme),
                "paper ms": paper,
                "ours ms": its.ms,
                "error": None if off is None else f"{off:+.1%}",
                "cell": "ours" if off is None else "fitted" if _is_fitted(result.network, scheme) else "predicted",
                "ours ms, Relus as in the file": result.plain[scheme].ms,
                "likely reason": _REASONS.get(result.network, "") if off is not None and abs(off) > _NEAR else "",
            }


def _is_fitted(network: str, scheme: SchemeName) -> bool:
    return network in FITTED.get(scheme, ())


def count_rows(results: Sequence[Result]) -> Iterator[Row]:
    """Each as paper / ours / ours with Relus as in the file; under TypeSeq, OpSeq and PartitionTuner."""
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


def statement_rows(results: Sequence[Result]) -> Iterator[Row]:
    """How much less one scheme takes than another, Equation 1, in percent."""
    by_network = {result.network: result for result in results}
    stated: tuple[tuple[str, SchemeName, SchemeName, float], ...] = (
        ("squeezenet", "partitiontuner", "typeseq", 5.03),
        ("resnet50", "partitiontuner", "opseq", 7.18),
        ("resnet18", "partitiontuner", "opseq", 5.36),
        ("squeezenet", "partitiontuner", "opseq", 2.73),
    )
    for network, better, worse, percent in stated:
        its = by_network[network].sunk
        yield {
            "network": NETWORKS[network].title,
            "scheme": SCHEMES[better],
            "against": SCHEMES[worse],
            "paper %": percent,
            "ours %": _percent_less(its[better], its[worse]),
        }
    for result in results:
        its = result.sunk
        yield {
            "network": NETWORKS[result.network].title,
            "scheme": "forkjoin",
            "against": SCHEMES["partitiontuner"],
            "paper %": None,
            "ours %": _percent_less(its["forkjoin"], its["partitiontuner"]),
        }


def _percent_less(one: Cell, other: Cell) -> float:
    return round(100 * (1 - one.ms / other.ms), 2) + 0.0
