"""Costs with the layers in another order, and a chain over that order as a plan over the file's layers.

A run of layers in the other order is several runs in the file's, and a stage may have these. It comes after the stages
whose results it reads, and no others: what does not need each other may be computed at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shisha_rt.costs.costs import Costs, CostTeam
from shisha_rt.costs.links import AS_INPUT
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.model.spans import Span
from shisha_rt.plan.plan import Plan, Stage


def reordered_costs(costs: Costs, spans: Sequence[Span], order: Sequence[int]) -> Costs:
    """With runs of layers that no cut parts (`spans`) in that order. What cuts cost, `why_unknown` has to know.

    Without splits, which name layers by where they are in the file.
    """
    layers = layers_in(spans, order)
    starts = {spans[group][0] for group in order}
    transfer_s = np.array([0.0 if layer in starts else math.nan for layer in layers[1:]])
    at = np.array(layers)
    position = {layer: number for number, layer in enumerate(layers)} | {AS_INPUT: AS_INPUT, len(layers): len(layers)}
    return replace(
        costs,
        layers=tuple(costs.layers[layer] for layer in layers),
        time_s=costs.time_s[at],
        transfer_s=transfer_s,
        teams=tuple(CostTeam(team.places, team.time_s[at]) for team in costs.teams),
        splits=SplitCosts(),
        tensors=tuple(
            replace(
                tensor, made=position[tensor.made], readers=tuple(sorted(position[reader] for reader in tensor.readers))
            )
            for tensor in costs.tensors
        ),
    )


def layers_in(spans: Sequence[Span], order: Sequence[int]) -> tuple[int, ...]:
    """(layers,): the file's layers, in the order of their groups."""
    return tuple(layer for group in order for layer in range(spans[group][0], spans[group][1] + 1))


def in_file_layers(chain: Plan, layers: Sequence[int], needs: Sequence[frozenset[int]]) -> Plan:
    """A chain over the order `layers` as the plan that `verify` and workers know. `needs` (layers,): see `PlanRules`.

    What is a chain in the file's order stays one; no other plan is one in the end.
    """
    works = [_runs(sorted(layers[at] for at in stage.layers)) for stage in chain.stages]
    stage_of = {layer: index for index, work in enumerate(works) for layer in _layers(work)}
    behind: list[int] = []  # of each stage, itself among them: a bit for each
    stages: list[Stage] = []
    for index, (stage, work) in enumerate(zip(chain.stages, works, strict=True)):
        read = {stage_of[maker] for layer in _layers(work) for maker in needs[layer]} - {index}
        after = tuple(
            maker for maker in sorted(read) if not any(behind[other] >> maker & 1 for other in read - {maker})
        )
        bit = 1 << index
        for needed in after:
            bit |= behind[needed]
        behind.append(bit)
        stages.append(Stage(work, stage.teams, after))
    plan = Plan(tuple(stages))
    ascending = all(len(work) == 1 for work in works) and works == sorted(works)
    if not ascending:
        return plan
    # A network may read its input again behind other layers: a chain of runs is written as one all the same.
    return Plan.chain((stage.first, stage.last, stage.teams) for stage in stages)


def _runs(layers: Sequence[int]) -> tuple[Span, ...]:
    """Ascending layers as runs, as long as can be."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer - 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return tuple((first, last) for first, last in runs)


def _layers(work: Sequence[Span]) -> list[int]:
    return [layer for first, last in work for layer in range(first, last + 1)]
