"""Results: a table on the terminal, the same as CSV with the machine in its header, and a figure."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS: Final = Path(__file__).parent.parent / "results"
QUICK_RESULTS: Final = RESULTS / "quick"
"""Of runs with less, which overwrite nothing that is kept in the repository."""

_COLOURS: Final = 96

Row = Mapping[str, object]
Side = TypeVar("Side")


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of several rounds: the median and the quartiles, three columns of a CSV file."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, figures: Iterable[float]) -> Self:
        ordered = sorted(figures)
        if len(ordered) == 1:
            return cls(ordered[0], ordered[0], ordered[0])
        return cls(*statistics.quantiles(ordered, n=4, method="inclusive"))

    def __str__(self) -> str:
        return f"{written(self.median)} ({written(self.low)} to {written(self.high)})"

    def columns(self, name: str) -> dict[str, float]:
        return {name: self.median, f"{name}, lower quartile": self.low, f"{name}, upper quartile": self.high}


def spreads(rounds: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    return {name: Spread.of(each[name] for each in rounds) for name in rounds[0]}


def percentile(figures: Sequence[float], percent: float) -> float:
    return float(np.percentile(figures, percent))


def at_ms(seconds: Sequence[float], percent: float) -> float | None:
    """Percentile in milliseconds; None without figures."""
    return 1e3 * percentile(seconds, percent) if len(seconds) else None


def listed(figures: Mapping[str, object], column: str) -> list[Row]:
    return [{"what": what, column: figure} for what, figure in figures.items()]


def show(title: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Print rows that all have the same keys; floats are printed with significant digits only."""
    table = Table(title=title, title_justify="left", caption="\n".join(notes), caption_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(written, row.values()))
    console = Console()
    # If the output is no terminal, a table must not be squeezed into a guessed width.
    Console(width=console.width if console.is_terminal else 200).print(table)


def save_csv(name: str, rows: Sequence[Row], facts: Mapping[str, str], folder: Path = RESULTS) -> Path:
    """Write `NAME.csv`. `facts` (see `facts.py`) come first, in lines that begin with #; None is an empty cell."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in facts.items())
        names = [column for name in rows[0] for column in dict.fromkeys(c for row in rows for c in _cells(name, row))]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({c: text for name in row for c, text in _cells(name, row).items()} for row in rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of results, without its header."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def save_figure(name: str, figure: Figure, facts: Mapping[str, str], folder: Path = RESULTS) -> Path:
    """Write `NAME.png`, with the machine and the date at the bottom."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.text(
        0.01,
        0.005,
        f"{facts['cpu']}, {facts['cores']} cores, {facts['date']}, commit {facts['commit']}",
        fontsize=7,
        color="0.4",
    )
    figure.savefig(path, dpi=120)
    return path


def few_colours(png: bytes) -> bytes:
    """The picture with a palette, which takes a third of the size in the repository."""
    from PIL import Image

    small = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(small, format="png", optimize=True)
    return small.getvalue()


def number(row: Row, column: str) -> float:
    return float(str(row[column]))


def only(rows: Iterable[Row], **which: object) -> Row:
    """The one row that has these values."""
    (row,) = (row for row in rows if all(row[key] == value for key, value in which.items()))
    return row


def in_turns(sides: Sequence[Side], rounds: int) -> Iterator[Sequence[Side]]:
    """The sides in the order of each round: each begins with another one."""
    for turn in range(rounds):
        first = turn % max(1, len(sides))
        yield [*sides[first:], *sides[:first]]


def _cells(name: str, row: Row) -> dict[str, str]:
    value = row[name]
    columns = value.columns(name) if isinstance(value, Spread) else {name: value}
    return {column: written(part) for column, part in columns.items()}


def written(value: object) -> str:
    """A value as text, for a cell of a table."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)
