"""Pages of results: a head, then sections with a table or a text each. Statements have a tally above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.report.results import RESULTS, Row, written
from benchmarks.report.statements import tally

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
    """Write `NAME.md`."""
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
    found = {}
    for section in text.split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
        if lines:
            found[section.splitlines()[0]] = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
    return found


def _body(body: Sequence[Row] | str) -> str:
    if isinstance(body, str):
        return body
    counted = f"{_TALLY.format(tally(body))}\n\n" if "repeats" in body[0] else ""
    return counted + table(body)
