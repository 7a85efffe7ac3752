"""What the paper's Figure 7 states of accuracy, and what comes out here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.partitiontuner.cases import TITLES
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.partitiontuner.statements import Statement, share
from benchmarks.report.results import Row


def accuracy_statements(rows: Sequence[Row]) -> Iterator[Statement]:
    """Of Figure 7's rows, all of one form. Schemes with as many Convs on the NPU are no pair."""
    by_network = {name: [row for row in rows if row["network"] == name] for name in {row["network"] for row in rows}}
    pairs = [
        _number(more, "cosine") <= _number(fewer, "cosine")
        for own in by_network.values()
        for more in own
        for fewer in own
        if _number(more, "Convs on NPU") > _number(fewer, "Convs on NPU")
    ]
    if pairs:
        yield Statement(
            "Figure 7",
            "the more Convs on the NPU, the less exact: pairs of schemes",
            "all",
            "",
            f"{sum(pairs)} of {len(pairs)}",
            share(pairs),
            "by cosine to floating point, as there are no trained weights: errors may also cancel",
        )
    squeezenet = by_network.get(NETWORKS["squeezenet"].title, [])
    typeseq = [row for row in squeezenet if row["scheme"] == TITLES["typeseq"]]
    others = [row for row in squeezenet if row not in typeseq]
    if typeseq and others:
        own, best = _number(typeseq[0], "cosine"), max(_number(row, "cosine") for row in others)
        least = min(_number(row, "cosine") for row in others)
        yield Statement(
            "Figure 7",
            "SqueezeNet: TypeSeq is the least exact",
            "lowest accuracy",
            "",
            f"cosine {own:.4f}, others {least:.4f} to {best:.4f}",
            share([own < least]),
            "",
        )


def _number(row: Row, column: str) -> float:
    return float(str(row[column]))
