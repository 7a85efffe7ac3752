"""Stages that have ended the workers which prepared them, and did nothing else: no plan with them is prepared again.

Crashes are counted for a stage's content, whatever plan the stage comes in, and forgotten once it is prepared.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.plan.engine import StageEngine
from shisha_rt.plan.plan import Plan, Stage, Team, team_name

_Content: TypeAlias = tuple[tuple[Span, ...], Team, tuple[str, ...], Split | None, StageEngine]
"""Identity of a stage for the worker that builds it: two stages with equal keys are built alike."""


class Crashes:
    """`most`: with so many a stage is not prepared any more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: Counter[_Content] = Counter()

    def note(self, stage: Stage, place: str) -> None:
        """Count a crash of the worker on `place` while it prepared `stage`."""
        self._times.update(_contents(stage, place))

    def forget(self, stage: Stage, place: str) -> None:
        """Clear the record of `stage` on `place`: the stage has been prepared there."""
        for content in _contents(stage, place):
            self._times.pop(content, None)

    def faults(self, plan: Plan) -> dict[int, str]:
        """The stages of `plan` that are not to be prepared, and what is to be said of each."""
        return {
            index: f"stage {index} on {team_name(team)} has ended its worker {times} times in its preparation"
            for index, stage in enumerate(plan.stages)
            for team in stage.teams
            if (times := self._times[_content(stage, team)]) >= self._most
        }


def _contents(stage: Stage, place: str) -> list[_Content]:
    return [_content(stage, team) for team in stage.teams if team[0] == place]


def _content(stage: Stage, team: Team) -> _Content:
    return stage.work, team, stage.placement, stage.split, stage.engine
