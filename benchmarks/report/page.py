"""Pages of results, and statements of papers beside our results: one record for the pages of all papers.

A page has a head, then sections with a table or a text each; statements have a tally above them. Each of their rows
states how ours was obtained. *Predicted*: by descriptions and rules that were not made from the statement, whether
executed on an emulated board or not. *Fitted*: a number of a description was chosen to meet it. *By construction*: a
rule or a ratio of ours was inferred from the statement itself. *Measured*: by a run here, without descriptions. A tally
counts predicted and measured rows only, as agreement of the others proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from benchmarks.report.results import RESULTS, Row, written

# --- statements -------------------------------------------------------------------------------------------------------


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
    cases = list(held)
    return "yes" if all(cases) else "partly" if any(cases) else "no"


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


# --- pages ------------------------------------------------------------------------------------------------------------


_TALLY: Final = "Repeats, in part, does not (predicted and measured alone): **{}**."


def page(head: str, sections: Mapping[str, Sequence[Row] | str]) -> str:
    """A page as Markdown. Sections without rows or text are left out."""
    return "\n".join([head, *(f"## {title}\n\n{_body(body)}\n" for title, body in sections.items() if body)])


def words(module: str, name: str = "page") -> tuple[str, dict[str, str]]:
    """The head of a page and the words of its sections, by title: `NAME.md` beside a module (its `__file__`)."""
    head, *sections = Path(module).with_name(f"{name}.md").read_text(encoding="utf-8").split("\n## ")
    titled = (section.partition("\n\n") for section in sections)
    return head, {title: text.rstrip() for title, _, text in titled}


def save_page(name: str, head: str, sections: Mapping[str, Sequence[Row] | str], folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(page(head, sections), encoding="utf-8")
    return path


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table; the columns are those of the first row."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([written(row[name]).replace("|", "\\|") for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables_of(text: str) -> dict[str, list[dict[str, str]]]:
    """The rows of each section's table on a page, by title."""
    tables = {}
    for section in text.split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
        if lines:
            tables[section.splitlines()[0]] = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
    return tables


def _body(body: Sequence[Row] | str) -> str:
    if isinstance(body, str):
        return body
    counted = f"{_TALLY.format(tally(body))}\n\n" if "repeats" in body[0] else ""
    return counted + table(body)


# --- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claims:
    """`rows`: by key; a cell may have fields in braces. `columns`: the titles of our results."""

    rows: Mapping[str, Mapping[str, str]]
    columns: Sequence[str]

    @classmethod
    def beside(cls, module: str, *columns: str) -> Claims:
        """Read the table in the folder of a module, given by its `__file__`."""
        (rows,) = tables_of(Path(module).with_name("claims.md").read_text(encoding="utf-8")).values()
        return cls({row["key"]: row for row in rows}, columns)

    def stated(
        self, key: str, ours: str | Sequence[str], repeats: Repeats, kind: Kind | None = None, /, **fields: object
    ) -> Statement:
        """The statement beside our results, which may be for the first columns alone.

        `kind`: if it is not that of the row; `fields`: values for those of the row.
        """
        row = {name: cell.format(**fields) for name, cell in self.rows[key].items()}
        (of_row,) = (each for each in KINDS if each == row["kind"])
        where, what, paper = (row[name] for name in ("paper's", "statement", "paper"))
        texts = [ours] if isinstance(ours, str) else ours
        by_column = dict.fromkeys(self.columns, "") | dict(zip(self.columns, texts, strict=False))
        return Statement(where, what, paper, by_column, kind or of_row, repeats, row["likely reason"])
