"""Seeds in chunks, a test for each; those beyond the first few are marked `long`, which `make test` leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def chunks(count: int, size: int, *, short: int, first: int = 0) -> list[ParameterSet]:
    """Ranges of seeds from `first` on, `count` seeds in all: the first `short`, and then long ones of `size` each."""
    end = first + count
    long = [
        pytest.param(range(start, min(start + size, end)), id=f"from {start}", marks=pytest.mark.long)
        for start in range(first + short, end, size)
    ]
    return [pytest.param(range(first, first + short), id=f"from {first}"), *long]
