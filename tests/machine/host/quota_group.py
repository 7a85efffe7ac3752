"""Control groups for tests, which are skipped where none can be made."""

from __future__ import annotations

import pytest

from benchmarks.rigs.quota_group import QuotaGroup


def quota_group(cores: float) -> QuotaGroup:
    try:
        return QuotaGroup(cores)
    except OSError as error:
        pytest.skip(str(error))
