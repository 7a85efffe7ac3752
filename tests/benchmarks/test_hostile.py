"""Hostile clients that end before their order is carried out."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.rigs.child_process import ChildProcess
from benchmarks.robust.hostile import beside


class Answering:
    """A child that answers each order in the same way."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self._answer = answer

    def ask(self, **_: object) -> dict[str, Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def child(answer: dict[str, Any] | Exception) -> ChildProcess:
    return cast(ChildProcess, Answering(answer))


POLITE = child({"latencies_s": [0.01], "refused": 1, "failed": 0, "lost": 0})


def test_what_ends_the_strangers_ends_the_benchmark() -> None:
    """It waited for ever for their results."""
    with pytest.raises(RuntimeError):
        beside(POLITE, 10.0, child(RuntimeError("ended with status -9")), {"malformed": 5})


def test_results_of_both_are_returned() -> None:
    latencies_s, lost, answers = beside(POLITE, 10.0, child({"found": {}}), {"slow": 1, "seconds": 1.0})
    assert (len(latencies_s), answers) == (lost, {})
