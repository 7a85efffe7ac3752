"""What a benchmark asks of a daemon before it measures."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from benchmarks.rigs import control as rig
from shisha_rt.errors import Failure


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A daemon on a busy host: for as long as anybody waits the tuner searches."""
    monkeypatch.setattr(rig, "_TIMEOUT_S", 0.0)
    control = Mock()
    control.call.return_value = {"tuner": {"state": "searching"}}
    control.events.return_value = {"events": [], "next": 0}
    return control


def test_a_quick_benchmark_measures_what_is_live_when_the_tuner_has_not_settled(searching: Mock) -> None:
    rig.tune(searching, Mock(), quick=True)
    searching.call.assert_called_with("tuner_set", pause=True)


def test_results_that_are_kept_are_of_a_tuner_that_has_settled(searching: Mock) -> None:
    with pytest.raises(Failure, match="0 s"):
        rig.tune(searching, Mock())
    searching.call.assert_not_called()
