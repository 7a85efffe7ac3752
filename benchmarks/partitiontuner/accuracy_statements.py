"""Statements of the paper's Figure 7 on accuracy, and our results.

Trained weights of its networks are not available: with random ones, cosines to floating point stand for accuracy. One
trained network, a reader of text, is not the paper's, but its accuracy is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.partitiontuner.cases import TITLES
from benchmarks.partitiontuner.published import NETWORKS
from benchmarks.partitiontuner.statements import CLAIMS
from benchmarks.report.results import Row, number
from benchmarks.report.statements import Statement, each, holds


def accuracy_statements(rows: Sequence[Row]) -> Iterator[Statement]:
    """Statements from Figure 7's rows, all of one form. Schemes with equally many Convs on the NPU are not compared."""
    by_network = {name: [row for row in rows if row["network"] == name] for name in {row["network"] for row in rows}}
    if pairs := [held for own in by_network.values() for held in _pairs(own, "cosine")]:
        yield CLAIMS.stated("exact, pairs", f"{sum(pairs)} of {len(pairs)}", each(pairs))
    squeezenet = by_network.get(NETWORKS["squeezenet"].title, [])
    typeseq = [row for row in squeezenet if row["scheme"] == TITLES["typeseq"]]
    others = [number(row, "cosine") for row in squeezenet if row not in typeseq]
    if typeseq and others:
        own = number(typeseq[0], "cosine")
        ours = f"cosine {own:.4f}, others {min(others):.4f} to {max(others):.4f}"
        yield CLAIMS.stated("exact, TypeSeq", ours, holds(own < min(others)))


def reader_statements(rows: Sequence[Row]) -> Iterator[Statement]:
    """Statements from the trained reader's rows, by scheme."""
    right = {str(row["scheme"]): int(str(row["lines right"])) for row in rows}
    alone = right.get(TITLES["baseline"])
    if alone is None:
        return
    others = {scheme: count for scheme, count in right.items() if scheme != TITLES["baseline"]}
    listed = ", ".join(f"{scheme} {count}" for scheme, count in others.items())
    ours = f"{alone} of {rows[0]['lines']} lines right, others {listed}"
    yield CLAIMS.stated("reader, lower", ours, each(count < alone for count in others.values()))
    if pairs := list(_pairs(rows, "lines right")):
        yield CLAIMS.stated("reader, pairs", f"{sum(pairs)} of {len(pairs)}", each(pairs))


def _pairs(rows: Sequence[Row], column: str) -> Iterator[bool]:
    for more in rows:
        for fewer in rows:
            if number(more, "Convs on NPU") > number(fewer, "Convs on NPU"):
                yield number(more, column) <= number(fewer, column)
