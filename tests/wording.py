"""Errors told by their kinds, and messages by the values that they name: not by their words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

OPEN: Final = "…"


ErrorT = TypeVar("ErrorT", bound=Exception)


@contextmanager
def raised(error: type[ErrorT], kind: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[ErrorT]]:
    """As `pytest.raises`, of an error of this kind."""
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert caught.value.kind == kind  # type: ignore[attr-defined]


class _Says:
    def __init__(self, text: str) -> None:
        self._text = text

    def __eq__(self, other: object) -> bool:
        pattern = ".*".join(re.escape(fixed) for fixed in self._text.split(OPEN))
        return isinstance(other, str) and re.fullmatch(pattern, other, re.DOTALL) is not None

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"says({self._text!r})"


def says(text: str) -> Any:
    """Equal to each text that has the fixed parts in their order, and any words where `…` stands.

    As `pytest.approx`, also within lists, tuples and dictionaries.
    """
    return _Says(text)
