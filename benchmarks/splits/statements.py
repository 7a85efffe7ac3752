"""Statements of the GP paper beside our results, on devices described like its board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.report.results import Row, number
from benchmarks.report.statements import Kind, Repeats, Statement, each

NEAR: Final = 0.15
_LATENCY: Final = "latency, in sequence"
_OWN: Final = "one FPGA a layer"
_COUPLE_MS: Final = 200.0


def statements(singles: Sequence[Row], weights: Sequence[Row], networks: Sequence[Row]) -> list[Statement]:
    """Statements from the rows of Figures 3 to 5, of Figure 8, and of Figure 9 and Table 1."""
    return [*_one_layer(singles), _weight(weights), *_networks(networks), *_against_balanced(networks)]


def _one_layer(rows: Sequence[Row]) -> Iterator[Statement]:
    board, implied, *_ = rows
    yield _of(
        "Figure 3",
        "steps of alpha until the shares make up the whole",
        "17",
        f"{board['steps']} on the board, {implied['steps']} with its ratio of costs",
        "by construction",
        "yes",
    )
    yield _of(
        "Figure 3",
        "of 16 channels one device has 14, the other 2",
        "14 to 2",
        f"{implied['GP: shares']} with a GPU of 7 times the FPGA's cost",
        "by construction",
        "yes",
    )
    yield _of(
        "Figure 3",
        "the same on the board as described",
        "14 to 2",
        f"FPGA to GPU {board['GP: shares']}",
        "predicted",
        each([str(board["GP: shares"]).endswith("14/2")]),
        "the paper prints no costs; 14 to 2 implies a GPU of 7 times the FPGA's cost, which the board has not",
    )
    walls = [number(row, "wall ms") for row in rows]
    yield _of(
        "Figure 3",
        "all steps together take less than a couple of hundred ms",
        "< 200 ms",
        f"{min(walls):.0f} to {max(walls):.0f} ms on this host",
        "measured",
        each(wall < _COUPLE_MS for wall in walls),
        "other processor and solver; cvxpy builds each program anew",
    )


def _weight(rows: Sequence[Row]) -> Statement:
    (row,) = (row for row in rows if row["paper"])
    ours, paper = number(row, "L2"), number(row, "paper")
    return _of(
        "Figure 8",
        f"error of S(x) = x^2k at k = {row['k']}",
        f"about {paper}",
        f"L2 {ours:.3f}",
        "predicted",
        each([abs(ours / paper - 1) <= NEAR]),
        "1 / sqrt(4k + 1); it would be 0.12 at k = 17",
    )


def _networks(rows: Sequence[Row]) -> Iterator[Statement]:
    own = [row for row in rows if (row["least"], row["limits"]) == (_LATENCY, _OWN)]
    first, last = ({row["network"]: number(row, column) for row in own} for column in _ENDS)
    yield _of(
        "Figure 9",
        "first layers are over 80% on the FPGA",
        "> 80% (61 of 64 in ResNet-18)",
        _listed(first, "%"),
        "predicted",
        each(share > _MOSTLY for share in first.values()),
        "",
    )
    yield _of(
        "Figure 9",
        "last layers are about 70% on the GPU",
        "69% (352 of 512 in ResNet-18)",
        _listed(last, "%"),
        "fitted",
        each(abs(share / _LAST - 1) <= NEAR for share in last.values()),
        "that the GPU is five times as fast as the CPU was chosen by it",
    )
    spans = {row["network"]: [float(end) for end in str(row["layers over the CPU"]).split(" - ")] for row in own}
    papers = {row["network"]: [float(end) for end in str(row["paper"]).split(" - ")] for row in own}
    least, most = ({name: span[end] for name, span in spans.items()} for end in (0, 1))
    yield _of(
        "Table 1",
        "least speed-up of a layer over the CPU alone",
        ", ".join(f"{name} {its[0]}" for name, its in papers.items()),
        _listed(least, ""),
        "by construction",
        each(abs(least[name] / its[0] - 1) <= NEAR for name, its in papers.items()),
        "a GPU of r times the CPU's speed gives (r + 1) / 2: r = 5 came from it",
    )
    yield _of(
        "Table 1",
        "greatest speed-up of a layer over the CPU alone",
        ", ".join(f"{name} {its[1]}" for name, its in papers.items()),
        _listed(most, ""),
        "predicted",
        each(abs(most[name] / its[1] - 1) <= NEAR for name, its in papers.items()),
        "of layers that the FPGA holds nearly whole; what its own takes the paper does not say",
    )


_ENDS: Final = ("first layer, FPGA %", "last layer, GPU %")
_LAST: Final = 69.0
_MOSTLY: Final = 80.0


def _against_balanced(rows: Sequence[Row]) -> Iterator[Statement]:
    for what, least, column, paper in (
        ("quicker", _LATENCY, "ms over balanced", 20.0),
        ("less energy", "energy", "mJ over balanced", 15.0),
    ):
        gains = {
            f"{row['network']}, {row['limits']}": -float(str(row[column]).rstrip("%"))
            for row in rows
            if row["least"] == least
        }
        yield _of(
            "Abstract",
            f"{what} than a balanced split by",
            f"{paper:g}%",
            f"{min(gains.values()):.0f} to {max(gains.values()):.0f}% over {len(gains)} cases",
            "predicted",
            each(abs(gain / paper - 1) <= NEAR for gain in gains.values()),
            "no experiment of the paper shows it; a third of each layer on the slow CPU is a weak rival",
        )


def _listed(figures: dict[object, float], unit: str) -> str:
    return ", ".join(f"{name} {figure:.1f}{unit}" for name, figure in figures.items())


def _of(where: str, what: str, paper: str, ours: str, kind: Kind, repeats: Repeats, reason: str = "") -> Statement:
    return Statement(where, what, paper, {"ours, emulated": ours}, kind, repeats, reason)
