"""What the table of faults calls kept, and that it tells of no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.robust.faults import damaged, fault_row, tidied
from tests.serving.identity_model import write_identity_model


@pytest.mark.parametrize(("bad", "kept", "expected"), [(0, True, "yes"), (1, True, "no"), (0, False, "no")])
def test_a_promise_is_kept_if_nothing_was_wrong_and_nobody_says_otherwise(bad: int, kept: bool, expected: str) -> None:
    assert fault_row("a", "b", "c", bad, kept=kept)["kept"] == expected


def test_times_folders_and_digests_are_left_out(tmp_path: Path) -> None:
    line = f"2026-01-02 03:04:05,678 {tmp_path}/shisha-rt/models/{'0a' * 32}: list.json is damaged"
    assert tidied(line) == "shisha-rt/models/: list.json is damaged"


@pytest.mark.long
def test_a_daemon_is_tuned_before_its_cache_is_damaged_on_a_busy_host_too(tmp_path: Path) -> None:
    row = next(damaged(tmp_path / "damaged", write_identity_model(tmp_path)))
    assert (row["client"], row["lost or wrong"], row["kept"]) == ("5 right answers", 0, "yes")
