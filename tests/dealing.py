"""How long each test file takes, as kept in `durations.json`, and so the order in which processes share the files.

A file goes to one process whole, so that its tests share their daemons. The longest go first: what comes last is
short, and all processes are done at about the same time. A file that has never been timed goes first of all.
`--keep-durations` times the files that run, and writes that down.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pytest

FILE: Final = Path(__file__).with_name("durations.json")


class Timed(Protocol):
    """What is asked of a test here."""

    @property
    def nodeid(self) -> str: ...

    @property
    def keywords(self) -> Container[str]: ...


Item = TypeVar("Item", bound=Timed)


def part_of(nodeid: str, keywords: Container[str]) -> str:
    """A test's file, and whether it is one of its long tests: the two run apart."""
    file = nodeid.partition("::")[0]
    return f"{file} (long)" if "long" in keywords else file


def kept() -> dict[str, float]:
    """Seconds by part."""
    seconds: dict[str, float] = json.loads(FILE.read_text())
    return seconds


def longest_first(items: Iterable[Item], seconds: Mapping[str, float]) -> list[Item]:
    """The items by files, those of a file in their order."""
    files: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)

    def length(of_file: list[Item]) -> float:
        parts = {part_of(item.nodeid, item.keywords) for item in of_file}
        return sum(seconds.get(part, float("inf")) for part in parts)

    return [item for of_file in sorted(files.values(), key=length, reverse=True) for item in of_file]


class Keeper:
    """A plugin that times parts as their tests' reports come in, and writes them down at the end."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[part_of(report.nodeid, report.keywords)] += report.duration

    def pytest_sessionfinish(self) -> None:
        there = {part: s for part, s in kept().items() if (FILE.parent.parent / part.split(" ")[0]).exists()}
        seconds = {**there, **{part: round(s, 1) for part, s in self._seconds.items()}}
        FILE.write_text(json.dumps(dict(sorted(seconds.items())), indent=0) + "\n")
