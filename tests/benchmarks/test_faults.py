"""What the table of faults calls kept, and that it tells of no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.robust.cache_faults import tidied
from benchmarks.robust.fault_row import fault_row


@pytest.mark.parametrize(("bad", "kept", "expected"), [(0, True, "yes"), (1, True, "no"), (0, False, "no")])
def test_a_promise_is_kept_if_nothing_was_wrong_and_nobody_says_otherwise(bad: int, kept: bool, expected: str) -> None:
    assert fault_row("a", "b", "c", bad, kept=kept)["kept"] == expected


def test_times_folders_and_digests_are_left_out(tmp_path: Path) -> None:
    line = f"2026-01-02 03:04:05,678 {tmp_path}/shisha-rt/models/{'0a' * 32}: list.json is damaged"
    assert tidied(line) == "shisha-rt/models/: list.json is damaged"
