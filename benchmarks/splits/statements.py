"""Statements of the GP paper beside our results, on devices described like its board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.report.claims import Claims
from benchmarks.report.results import Row, number
from benchmarks.report.statements import Statement, each, holds

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
