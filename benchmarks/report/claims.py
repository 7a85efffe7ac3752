"""A paper's statements, in a Markdown table beside the code that judges them: `claims.md`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report.page import tables_of
from benchmarks.report.statements import KINDS, Repeats, Statement


@dataclass(frozen=True, slots=True)
class Claims:
    """`rows`: by key; a cell may have fields in braces. `column`: the title of our results."""

    rows: Mapping[str, Mapping[str, str]]
    column: str

    @classmethod
    def beside(cls, module: str, column: str) -> Claims:
        """Read the table in the folder of a module, given by its `__file__`."""
        (rows,) = tables_of(Path(module).with_name("claims.md").read_text(encoding="utf-8")).values()
        return cls({row["key"]: row for row in rows}, column)

    def stated(self, key: str, ours: str, repeats: Repeats, **fields: object) -> Statement:
        """The statement beside our result. `fields`: values for those of the row."""
        row = {name: cell.format(**fields) for name, cell in self.rows[key].items()}
        (kind,) = (kind for kind in KINDS if kind == row["kind"])
        where, what, paper = (row[name] for name in ("paper's", "statement", "paper"))
        return Statement(where, what, paper, {self.column: ours}, kind, repeats, row["likely reason"])
