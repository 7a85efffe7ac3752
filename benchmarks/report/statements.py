"""Statements of papers beside our results: one record for the pages of all papers, and the tally of rows.

Each row states how ours was obtained. *Predicted*: by descriptions and rules that were not made from the statement,
whether executed on an emulated board or not. *Fitted*: a number of a description was chosen to meet it. *By
construction*: a rule or a ratio of ours was inferred from the statement itself. *Measured*: by a run here, without
descriptions. A tally counts predicted and measured rows only, as agreement of the others proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from benchmarks.report.results import Row

Kind = Literal["predicted", "fitted", "by construction", "measured"]
Repeats = Literal["yes", "nearly", "partly", "no", "untried"]
"""`untried`: it cannot be decided here; such a row is in no tally."""
KINDS: Final[Sequence[Kind]] = get_args(Kind)
COUNTED: Final[Sequence[Kind]] = ("predicted", "measured")
OURS: Final = "(ours)"
"""Instead of a paper's figure or section: an aim of ours, which is in no tally."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`where`: figure or section of the paper; `ours`: text by column, of which the first is judged. `reason`: the
    likely one, shown if the statement does not repeat.
    """

    where: str
    what: str
    paper: str
    ours: Mapping[str, str]
    kind: Kind
    repeats: Repeats
    reason: str = ""

    def row(self) -> Row:
        return {
            "paper's": self.where,
            "statement": self.what,
            "paper": self.paper,
            **self.ours,
            "kind": self.kind,
            "repeats": self.repeats,
            "likely reason": "" if self.repeats == "yes" else self.reason,
        }


def holds(held: bool) -> Repeats:
    return "yes" if held else "no"


def each(held: Iterable[bool]) -> Repeats:
    """Whether a statement on several cases repeats: yes, partly or no."""
    found = list(held)
    return "yes" if all(found) else "partly" if any(found) else "no"


@dataclass(frozen=True, slots=True)
class Tally:
    """How many statements of a paper repeat, nearly or in part, or do not; and how many are not counted, by kind."""

    yes: int
    in_part: int
    no: int
    apart: Mapping[str, int]

    @property
    def of(self) -> int:
        return self.yes + self.in_part + self.no

    def __str__(self) -> str:
        counted = f"{self.yes}, {self.in_part}, {self.no} of {self.of}"
        apart = ", ".join(f"{count} {kind}" for kind, count in self.apart.items() if count)
        return f"{counted}; apart from these: {apart}" if apart else counted


def tally(rows: Iterable[Row]) -> Tally:
    """The tally of rows of `Statement.row`, or of rows read from a file."""
    counted, apart = Counter[str](), dict.fromkeys((*KINDS, "aims of ours"), 0)
    for row in rows:
        if row["paper's"] == OURS:
            apart["aims of ours"] += 1
        elif row["kind"] in COUNTED:
            counted[str(row["repeats"])] += 1
        else:
            apart[str(row["kind"])] += 1
    return Tally(counted["yes"], counted["nearly"] + counted["partly"], counted["no"], apart)
