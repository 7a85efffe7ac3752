"""What a run of a benchmark writes: where it is, its results and tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.report.facts import facts
from benchmarks.report.headers import with_kept
from benchmarks.report.page import save_page
from benchmarks.report.results import QUICK_RESULTS, RESULTS, Row, in_turns, save_csv, save_figure, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLEAR: Final = "\r\033[K"
_T = TypeVar("_T")


class Report:
    """`name`: of the benchmark, in front of each line, and of its results. `about`: further facts of their header.

    On a terminal where it is stands in one line that is overwritten; elsewhere only new steps are written.
    """

    def __init__(self, name: str, about: Mapping[str, str] = MappingProxyType({}), *, quick: bool = False) -> None:
        self.about = {**facts(), **about}
        self.folder = QUICK_RESULTS if quick else RESULTS
        self._name = name
        self._began_s = time.monotonic()
        self._written: set[Path] = set()
        self._is_terminal = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """Write a line that stays, for a step of minutes."""
        self._clear()
        print(f"{self._name}: {what} ...", flush=True)

    def glance(self, what: str) -> None:
        """Write a temporary line, on a terminal only."""
        if self._is_terminal:
            minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
            sys.stderr.write(f"{_CLEAR}{self._name}: {what} ({minutes}:{seconds:02d})")
            sys.stderr.flush()

    def rounds(self, what: str, sides: Mapping[str, Callable[[], _T]], count: int) -> list[dict[str, _T]]:
        """What each side returns in each round. All take turns; each round begins with another side."""
        rounds: list[dict[str, _T]] = []
        for number, turn in enumerate(in_turns(list(sides), count), start=1):
            rounds.append({})
            for name in turn:
                self.glance(f"{what}: round {number} of {count}, {name}")
                rounds[-1][name] = sides[name]()
        return rounds

    def save(self, rows: Sequence[Row], name: str = "", **about: str) -> None:
        """Write a file of results: as often as there are more rows, so that those are kept if a later one fails.

        `about`: further facts of its header.
        """
        self._say(save_csv(name or self._name, rows, self.about | about, self.folder))

    def save_by(self, column: str, rows: Sequence[Row], name: str = "", *, add: bool = True) -> None:
        """As `save`, with the commit of each row; `add`: the file keeps rows that have other values of a column."""
        kept = self.folder / f"{name or self._name}.csv" if add else None
        self._say(save_csv(name or self._name, *with_kept(kept, column, rows, self.about), self.folder))

    def save_figure(self, name: str, figure: Figure) -> None:
        self._say(save_figure(name, figure, self.about, self.folder))

    def save_page(self, head: str, sections: Mapping[str, Sequence[Row] | str], **fields: object) -> None:
        """Write a page of results. `head`: its fields are the facts, and `fields`."""
        self._say(save_page(self._name, head.format(**self.about, **fields), sections, self.folder))

    def show(self, title: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
        self._clear()
        show(title, rows, notes)

    def keep(self, title: str, rows: Sequence[Row], notes: Sequence[str] = (), *, name: str = "") -> None:
        """Write a file of results, and show it."""
        self.save(rows, name)
        self.show(title, rows, notes)

    def _say(self, path: Path) -> None:
        """Say where a file is, when it is written for the first time."""
        if path not in self._written:
            self._written.add(path)
            self._clear()
            print(f"{self._name}: writes {path}", flush=True)

    def _clear(self) -> None:
        if self._is_terminal:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
