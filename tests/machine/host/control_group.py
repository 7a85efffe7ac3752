"""Control groups for tests, which are skipped where none can be made."""

from __future__ import annotations

import pytest

from benchmarks.rigs.control_group import MemoryGroup, QuotaGroup


def quota_group(cores: float) -> QuotaGroup:
    try:
        return QuotaGroup(cores)
    except OSError as error:
        pytest.skip(str(error))


def memory_group(limit_bytes: int) -> MemoryGroup:
    try:
        return MemoryGroup(limit_bytes)
    except OSError as error:
        pytest.skip(str(error))
