"""The last look at a plan before it runs, whoever made it.

Written apart from the planners on purpose: it shares no code with them, so that a planner's mistake cannot
hide in its own checker. It says everything that is wrong, not just the first thing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shisha_rt.plan.plan import Plan, Stage


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What plans of one model on one machine may be: the arguments of the checks below, which see to them."""

    layer_count: int
    places: tuple[str, ...]
    legal_cuts: frozenset[int] | None = None
    operator_counts: tuple[int, ...] = ()
    devices: Mapping[str, Collection[str]] = field(default_factory=dict)

    def problems(self, plan: Plan) -> list[str]:
        return problems(plan, layer_count=self.layer_count, places=self.places, legal_cuts=self.legal_cuts)

    def placement_problems(self, plan: Plan) -> list[str]:
        return placement_problems(plan, operator_counts=self.operator_counts, devices=self.devices)


def problems(plan: Plan, *, layer_count: int, places: Collection[str], legal_cuts: Collection[int] | None) -> list[str]:
    """What keeps `plan` from running on `places` (names); empty when it may run.

    Cut c lies between layers c and c+1; None: every cut is legal.
    """
    if not plan.stages:
        return ["the plan has no stages, expected at least one"]
    return [
        *_coverage(plan, layer_count),
        *_cuts(plan, layer_count, legal_cuts),
        *_placing(plan, places),
    ]


def placement_problems(
    plan: Plan, *, operator_counts: Sequence[int], devices: Mapping[str, Collection[str]]
) -> list[str]:
    """What is wrong with the placements of a plan whose stages may run; empty if nothing is.

    `operator_counts` is (layers,); `devices` has the names of each place's. Where it has none there is no placement.
    """
    found = []
    for index, stage in enumerate(plan.stages):
        known = devices.get(stage.place, ())
        expected = sum(operator_counts[stage.first : stage.last + 1]) if known else 0
        if len(stage.placement) != expected:
            found.append(f"{_named(index, stage)} places {len(stage.placement)} operators, expected {expected}")
        for device in sorted(set(stage.placement) - set(known)) if known else ():
            found.append(f"{_named(index, stage)} uses device {device!r}, expected one of {', '.join(known)}")
    return found


def _named(index: int, stage: Stage) -> str:
    return f"stage {index} (layers {stage.first}-{stage.last})"


def _coverage(plan: Plan, layer_count: int) -> Iterator[str]:
    """Each layer in exactly one stage, in the network's order."""
    expected_first = 0
    for index, stage in enumerate(plan.stages):
        if stage.last < stage.first:
            yield f"{_named(index, stage)} is empty: empty stages are not listed"
        if stage.first != expected_first:
            yield f"{_named(index, stage)} starts at layer {stage.first}, expected {expected_first}"
        expected_first = stage.last + 1
    if expected_first != layer_count:
        yield f"the last stage ends at layer {expected_first - 1}, expected {layer_count - 1}"


def _cuts(plan: Plan, layer_count: int, legal_cuts: Collection[int] | None) -> Iterator[str]:
    if legal_cuts is None:
        return
    for index, stage in enumerate(plan.stages[:-1]):
        cut = stage.last
        if 0 <= cut < layer_count - 1 and cut not in legal_cuts:
            yield (
                f"cut {cut}, between layers {cut} and {cut + 1}, after {_named(index, stage)}, is not legal: "
                "the two layers cannot be separated"
            )


def _placing(plan: Plan, places: Collection[str]) -> Iterator[str]:
    used: set[str] = set()
    for index, stage in enumerate(plan.stages):
        if len(stage.places) != 1:
            yield f"{_named(index, stage)} has {len(stage.places)} places, expected exactly one"
        for place in stage.places:
            if place not in places:
                yield f"{_named(index, stage)} is on {place!r}, expected one of {', '.join(places)}"
            if place in used:
                yield f"{_named(index, stage)} is on {place!r}, which another stage uses already"
            used.add(place)
