"""A paper's statements, in a Markdown table beside the code that judges them: `claims.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report.page import tables_of
from benchmarks.report.statements import KINDS, Kind, Repeats, Statement


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
