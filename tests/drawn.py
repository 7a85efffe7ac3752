"""Seeds in chunks, a test for each; those beyond the first few are marked `long`, which `make test` leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def chunks(count: int, size: int, *, short: int, first: int = 0) -> list[ParameterSet]:
    """Ranges of `size` seeds from `first` on, `count` seeds in all, the first `short` of them not long."""
    return [
        pytest.param(
            range(start, min(start + size, first + count)),
            id=f"from {start}",
            marks=[pytest.mark.long] if start >= first + short else [],
        )
        for start in range(first, first + count, size)
    ]
