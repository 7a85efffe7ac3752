"""Results: a table at the terminal, the same as CSV with the machine in its header, and a figure beside it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS: Final = Path(__file__).parent.parent / "results"

Row = Mapping[str, object]


def show(title: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """Print rows that all have the same keys; floats with as many digits as they need."""
    table = Table(title=title, title_justify="left", caption="\n".join(notes), caption_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row.values()))
    console = Console()
    # Somewhere that is no terminal, a table must not be squeezed into a guessed width.
    Console(width=console.width if console.is_terminal else 200).print(table)


def save_csv(name: str, rows: Sequence[Row], facts: Mapping[str, str]) -> Path:
    """Write `results/NAME.csv`; lines that begin with # say where and when."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.csv"
    with path.open("w", newline="") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in facts.items())
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _text(value) for key, value in row.items()} for row in rows)
    return path


def save_figure(name: str, figure: Figure, facts: Mapping[str, str]) -> Path:
    """Write `results/NAME.png`, with the machine and the date at its foot."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.png"
    figure.text(0.01, 0.005, f"{facts['cpu']}, {facts['cores']} cores, {facts['date']}", fontsize=7, color="0.4")
    figure.savefig(path, dpi=120)
    return path


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)
