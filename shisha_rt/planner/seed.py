"""Shisha (2022), Algorithm 1: a first plan from what is known before anything has run.

It trades quality for not needing a single measurement: weights (Eq. 1) stand in for times, and ranks for
speeds. A heavy stage may still be a quick one, so the seed is where tuning starts, not where it ends.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeVar, get_args

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.spans import groups_of
from shisha_rt.plan.plan import Plan

Assign = Literal["weight", "layers", "random"]
ASSIGNS: Final[tuple[Assign, ...]] = get_args(Assign)


class Ranked(Protocol):
    """What the seed needs to know of a place: `machine.Place` has it, and so has a place of COSTS.json."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...


R = TypeVar("R", bound=Ranked)


def seed(
    weights: Sequence[float],
    places: Sequence[Ranked],
    *,
    stage_count: int | None = None,
    assign: Assign = "weight",
    legal_cuts: Collection[int] | None = None,
    rng: random.Random | None = None,
) -> Plan:
    """The plan of Algorithm 1: layers merged into `stage_count` stages (lines 3-8), then placed (lines 9-12).

    `weights` is (layers,), Eq. 1. Cut c lies between layers c and c+1; None: every cut is legal. Layers that no legal
    cut parts are merged from the start (ours). `stage_count`: by default the number of places or of groups, whichever
    is smaller.

    `assign` is the paper's choice C: "weight" is Rank_w, the heaviest stage on the fastest place; "layers" is
    Rank_l, the most layers on the slowest; "random" (H5, H6) needs `rng`. Ties: the stage further left
    chooses first. With fewer stages than places only the fastest places are used, in all three (ours:
    the paper has as many stages as places).

    Raises BadInput for a stage count that layers, legal cuts or places do not allow.
    """
    groups = [
        _Group(first, last, sum(weights[first : last + 1])) for first, last in groups_of(len(weights), legal_cuts)
    ]
    stage_count = min(len(places), len(groups)) if stage_count is None else stage_count
    for fault in _faults(weights, len(groups), len(places), stage_count):
        raise BadInput(fault, Error.WRONG_OPTION)
    stages = _merge(groups, stage_count)
    return _place(stages, by_rank(places)[:stage_count], assign, rng)


def by_rank(places: Sequence[R]) -> list[R]:
    """H_e of the paper: fastest class first, within a class as listed."""
    return sorted(places, key=lambda place: place.rank)


class _Group(NamedTuple):
    """Layers `first` to `last`, inclusive, that will be in one stage."""

    first: int
    last: int
    weight: float

    @property
    def layer_count(self) -> int:
        return self.last - self.first + 1

    def joined_with(self, right: _Group) -> _Group:
        return _Group(self.first, right.last, self.weight + right.weight)


def _faults(weights: Sequence[float], group_count: int, place_count: int, stage_count: int) -> Iterator[str]:
    if not weights:
        yield "no layers to place: expected at least one"
    if min(weights) < 0:
        yield f"weight of layer {weights.index(min(weights))}: expected not negative"
    if not place_count:
        yield "no places to run on: expected at least one"
    if stage_count < 1:
        yield f"{stage_count} stages: expected at least 1"
    if stage_count > place_count:
        yield f"{stage_count} stages: expected at most {place_count}, the number of places"
    if stage_count > group_count:
        whole = "the number of layers" if group_count == len(weights) else "as the legal cuts allow no more"
        yield f"{stage_count} stages: expected at most {group_count}, {whole}"


def _merge(groups: list[_Group], stage_count: int) -> list[_Group]:
    """Lines 3-8: the lightest group joins its lighter neighbour, until `stage_count` are left; ties: leftmost."""
    groups, weights = list(groups), [group.weight for group in groups]
    while len(groups) > stage_count:
        lightest = weights.index(min(weights))
        left, right = lightest - 1, lightest + 1
        leftwards = right == len(groups) or (left >= 0 and weights[left] <= weights[right])
        at = left if leftwards else lightest
        groups[at : at + 2] = [groups[at].joined_with(groups[at + 1])]
        weights[at : at + 2] = [groups[at].weight]
    return groups


def _place(stages: list[_Group], fastest: Sequence[Ranked], assign: Assign, rng: random.Random | None) -> Plan:
    """Lines 9-12: `fastest` holds as many places as there are stages, fastest first."""
    order = list(range(len(stages)))
    chosen = list(fastest)
    if assign == "weight":
        order.sort(key=lambda i: -stages[i].weight)
    elif assign == "layers":
        order.sort(key=lambda i: -stages[i].layer_count)
        chosen.reverse()
    elif rng is None:
        raise BadInput("assign = random: expected a random generator", Error.WRONG_OPTION)
    else:
        rng.shuffle(order)
    name_of = {stage: place.name for stage, place in zip(order, chosen, strict=True)}
    return Plan.of((group.first, group.last, name_of[i]) for i, group in enumerate(stages))
