"""The one written form of a plan for users, in JSON. Between our own processes plans are sent as they are.

`{"first":0,"last":11,"places":["core0"]}` is a stage on one place, behind the stage before it. Several places are
copies; a list instead of a name is a team: `"places":[["core0","core1"]]`. `"layers":[[3,5],[9,9]]` replaces first and
last if a stage has several runs of layers. `"after":[0,2]` is given unless a stage is behind the one before it.
`"split":{"first":3,"last":3,"axis":"channels","shares":[32,32]}` is given in the stage of each shard, in the order of
the shares, and then in their join, if there is one: its layers may go on behind the split. `"engine":"openvino"` is
given if another engine than the default one computes the stage. `"batch":8`: the most frames that the stage computes
together, if more than one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final

import msgspec

from shisha_rt.checked import one_of
from shisha_rt.model.spans import Span
from shisha_rt.model.split import AXES, Split
from shisha_rt.plan.engine import DEFAULT_ENGINE, STAGE_ENGINES
from shisha_rt.plan.plan import MOST_BATCH, Plan, Stage, Team, behind

_Layer = Annotated[int, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Team = Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1)]

MOST_STAGES: Final = 1024
_MOST_SHARES: Final = 1024
_NEARLY: Final = 0.8
_MOST_TEAMS: Final = 4096
"""Limits of what is read; how many a plan may have depends on model and machine (`plan/verify.py`)."""


class WrittenSplit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A split, as written in every stage that carries it."""

    first: _Layer
    last: _Layer
    axis: str
    shares: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(min_length=2, max_length=_MOST_SHARES)
    ]

    def __post_init__(self) -> None:
        one_of("axis", self.axis, AXES)


class WrittenStage(msgspec.Struct, frozen=True):
    """A stage as `written` returns it. Other keys are ignored, such as measured times."""

    places: Annotated[tuple[_Name | _Team, ...], msgspec.Meta(min_length=1, max_length=_MOST_TEAMS)]
    first: _Layer | None = None
    last: _Layer | None = None
    layers: Annotated[tuple[tuple[_Layer, _Layer], ...], msgspec.Meta(min_length=1)] | None = None
    after: tuple[_Layer, ...] | None = None
    split: WrittenSplit | None = None
    engine: str | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=MOST_BATCH)] | None = None

    def __post_init__(self) -> None:
        ends = self.first is not None, self.last is not None
        if ends != ((True, True) if self.layers is None else (False, False)):
            raise ValueError("expected either `first` and `last`, or `layers`, to say its layers")
        if self.engine is not None:
            one_of("engine", self.engine, STAGE_ENGINES)

    @property
    def work(self) -> tuple[Span, ...]:
        if self.layers is not None:
            return self.layers
        assert self.first is not None and self.last is not None  # noqa: PT018 (they are there together)
        return ((self.first, self.last),)

    @property
    def teams(self) -> tuple[Team, ...]:
        return tuple((team,) if isinstance(team, str) else team for team in self.places)


def read(stages: Iterable[WrittenStage]) -> Plan:
    """The plan that is written down."""
    parts: Counter[WrittenSplit] = Counter()
    stage_forms = []
    for index, stage in enumerate(stages):
        split, after = None, behind(index) if stage.after is None else stage.after
        if stage.split is not None:
            carried = stage.split
            axis = one_of("axis", carried.axis, AXES)
            split = Split((carried.first, carried.last), axis, carried.shares, parts[carried])
            parts[carried] += 1
        engine = one_of("engine", stage.engine or DEFAULT_ENGINE, STAGE_ENGINES)
        batch = stage.batch or 1
        stage_forms.append(Stage(stage.work, stage.teams, after, split=split, engine=engine, batch=batch))
    return Plan(tuple(stage_forms))


def plan_of(stages: Iterable[Mapping[str, Any]]) -> Plan:
    """The plan of stages in JSON, as in `plan_get`, `status` or a trial. Raises msgspec.ValidationError."""
    return read(msgspec.convert(list(stages), tuple[WrittenStage, ...]))


def misspelt(stage: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield unknown, ignored keys of a stage that are nearly known ones, each with the known key.

    Not those of further columns (`written`), whose names end with their unit.
    """
    for key in sorted(stage.keys() - {*WrittenStage.__struct_fields__}):
        if key.endswith("_s"):
            continue
        for meant in get_close_matches(key, WrittenStage.__struct_fields__, n=1, cutoff=_NEARLY):
            yield key, meant


def written(plan: Plan, **columns: Iterable[object]) -> list[dict[str, Any]]:
    """`stages` as `plan --json` prints and `plan_set` takes them. `columns`: further keys, values by stage."""
    rows: Sequence[Sequence[object]] = list(zip(*columns.values(), strict=True)) if columns else [()] * len(plan.stages)
    return [
        {**_written_stage(index, stage), **dict(zip(columns, row, strict=True))}
        for index, (stage, row) in enumerate(zip(plan.stages, rows, strict=True))
    ]


def _written_stage(index: int, stage: Stage) -> dict[str, Any]:
    stage_object: dict[str, Any] = {}
    if len(stage.work) == 1:
        stage_object |= {"first": stage.first, "last": stage.last}
    else:
        stage_object["layers"] = [list(span) for span in stage.work]
    alone = all(len(team) == 1 for team in stage.teams)
    stage_object["places"] = [team[0] if alone else list(team) for team in stage.teams]
    if stage.after != behind(index):
        stage_object["after"] = list(stage.after)
    if stage.split is not None:
        (first, last), axis, shares = stage.split.whole
        stage_object["split"] = {"first": first, "last": last, "axis": axis, "shares": list(shares)}
    if stage.engine != DEFAULT_ENGINE:
        stage_object["engine"] = stage.engine
    if stage.batch > 1:
        stage_object["batch"] = stage.batch
    return stage_object
