"""What the placer has been asked and has not answered. It works in order, so what it dies of is the first of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

DEATHS: Final = 2
"""Of the placer over one request, before that is given up: one may have been an accident."""

AskedT = TypeVar("AskedT")


@dataclass(slots=True)
class _Open(Generic[AskedT]):
    """`asked` is None if nobody waits for it any more; the placer works on it all the same."""

    asked: AskedT | None
    deaths: int = 0


class PlacerQueue(Generic[AskedT]):
    """Requests by number, in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: dict[int, _Open[AskedT]] = {}

    def __iter__(self) -> Iterator[tuple[int, AskedT]]:
        """Those that somebody waits for."""
        return ((number, placing.asked) for number, placing in self._open.items() if placing.asked is not None)

    def add(self, number: int, asked: AskedT) -> None:
        self._open[number] = _Open(asked)

    def answered(self, number: int) -> AskedT | None:
        """What was asked, if somebody waits for the answer."""
        placing = self._open.pop(number, None)
        return None if placing is None else placing.asked

    def withdraw(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._open[number].asked = None

    def died(self) -> AskedT | None:
        """The placer has: what it has died of once too often, if it has; all others are to be asked again."""
        first = next(iter(self._open.items()), None)
        self._open = {number: placing for number, placing in self._open.items() if placing.asked is not None}
        if first is None:
            return None
        number, poison = first
        poison.deaths += 1
        return self.answered(number) if poison.deaths >= DEATHS else None
