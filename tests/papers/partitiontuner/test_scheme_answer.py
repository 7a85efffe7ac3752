"""What `plan` says of a schedule of partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shisha_rt.papers.partitiontuner.scheme_answer import SchemeAnswer


def said(stages: int, branches: int, overlapping: int) -> str:
    scheduled: Any = SimpleNamespace(
        scheme="forkjoin",
        plan=SimpleNamespace(stages=(None,) * stages, places=("a", "b")),
        foretold=SimpleNamespace(latency_s=1.0, handover_s=0.0),
        lower_bound_s=1.0,
        parallel_branches=branches,
        overlapping=overlapping,
    )
    profiled: Any = SimpleNamespace(partitions=1, distinct=1, measured=0, seconds=0.0)
    drawn: Any = SimpleNamespace(picture=lambda width: "")
    return SchemeAnswer(drawn, scheduled, profiled, 0.0).in_words(80).splitlines()[2]


def test_partitions_beside_others_are_counted_as_partitions() -> None:
    """A branch may be several partitions, so that more of these than branches may run beside others."""
    several, single = said(25, 16, 20), said(1, 0, 0)
    assert "25 partitions on a, b, 20 of them" in several
    assert several.endswith("16 parallel branches")
    assert "1 partition on a, b" in single
