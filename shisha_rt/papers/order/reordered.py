"""Costs with the layers in another order, and a chain over that order as a plan over the file's layers.

A run of layers in the other order may be several runs in the file's, which a stage may have. A stage waits only for the
stages from which it reads, so that independent stages may compute a frame at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shisha_rt.costs.costs import Costs, CostTeam
from shisha_rt.costs.links import AS_INPUT
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.model.spans import Span, runs_of
from shisha_rt.plan.plan import Plan, Stage


def reordered_costs(costs: Costs, spans: Sequence[Span], order: Sequence[int]) -> Costs:
    """Costs with runs of layers that no cut divides (`spans`) in another order. Cuts must cost nothing (`why_unknown`).

    Splits are left out, as they refer to layers by their positions in the file.
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
    """A chain over the order `layers` as a plan over the file's layers. `needs` (layers,): see `PlanRules`.

    The result is a chain if it is one in the file's order.
    """
    own = [sorted(layers[at] for at in stage.layers) for stage in chain.stages]
    works = [runs_of(stage_layers) for stage_layers in own]
    stage_of = {layer: index for index, stage_layers in enumerate(own) for layer in stage_layers}
    behind: list[int] = []  # for each stage, a bit for itself and for each stage that it waits for, also indirectly
    stages: list[Stage] = []
    for index, (stage, work) in enumerate(zip(chain.stages, works, strict=True)):
        read = {stage_of[maker] for layer in own[index] for maker in needs[layer]} - {index}
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
    # Runs in the file's order are a chain, even if a stage reads only the network's input and not the stage before.
    return Plan.chain((stage.first, stage.last, stage.teams) for stage in stages)
