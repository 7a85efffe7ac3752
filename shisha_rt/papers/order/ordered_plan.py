"""The best chain over any topological order of the layers, if it is better than the best over the file's order.

The file has parallel branches one after the other, so a stage cannot have some layers of each. Another order may
balance stages better, and send less to another host and back. On one host, times of layers do not depend on the order,
as long as cuts cost nothing.

With one place for each stage the answer is exact if the network has few enough downsets (see `downsets`): no order
allows a better chain. If it has more, downsets along good orders are searched, then those near the cuts of the best
chain so far, until none is better. With copies, or very many kinds of places, the exact planner tries good orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from shisha_rt.costs.costs import Costs, CostTeam
from shisha_rt.costs.links import AS_INPUT
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.spans import Span, groups_of, runs_of
from shisha_rt.papers.order.best_cuts import BestCuts, GroupCosts, best_cuts, group_costs
from shisha_rt.papers.order.downsets import (
    Downset,
    GroupNeeds,
    Order,
    downsets_along,
    every_downset,
    good_orders,
    group_needs,
    near,
    order_through,
)
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.planner.chains import place_seconds
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.prices import bottleneck_bound_s

MOST_DOWNSETS: Final = 1500
MOST_WORK: Final = 3e7
"""Most pairs of a stage and counts of places: a fraction of a second."""
_MOST_ROUNDS: Final = 20
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class OrderLimits:
    """Limits of work instead of time, so that the result for the same costs is the same on any machine."""

    most_downsets: int = MOST_DOWNSETS
    most_work: float = MOST_WORK


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """`plan`: over the file's layers; None: no plan better than the best over the file's order was found.

    `bottleneck_s`: of `plan`, or else of the file's order; `lower_s`: no chain over any order is below it.
    """

    plan: Plan | None
    bottleneck_s: float
    lower_s: float

    @property
    def is_proven(self) -> bool:
        """Whether it is proven that no order allows a better chain."""
        return self.lower_s >= self.bottleneck_s * (1 - 2 * _TOLERANCE)


def ordered_plan(
    costs: Costs,
    needs: Sequence[frozenset[int]],
    file_s: float = math.inf,
    goal: Goal = Goal(latency_states=0),  # noqa: B008 (it is frozen)
    limits: OrderLimits = OrderLimits(),
) -> OrderedPlan:
    """Find a chain of a smaller bottleneck than `file_s`, that of the best over the file's order (inf: there is none).

    `needs` (layers,): the earlier layers from which each reads a tensor. `costs` must be known for other orders
    (`why_no_other_order`). `goal`: of the chains over any order; its objective is throughput. Batches are known for the
    file's order alone: other orders are tried without them, and nothing is proven.
    """
    if costs.batches:
        return replace(ordered_plan(replace(costs, batches=()), needs, file_s, goal, limits), lower_s=0.0)
    search = _search(costs, needs, goal, limits)
    groups, spans = search.groups, search.network.spans
    place_s = place_seconds(groups.model, goal)
    least_s = bottleneck_bound_s(place_s, groups.counts, None if goal.replicate else search.goal.most_stages)
    best = OrderedPlan(None, file_s, min(least_s, file_s))
    if best.is_proven:
        return best
    candidates = search.candidates(file_s)
    lower_s = min(max(least_s, candidates.lower_s), file_s)
    predicted = team_costs(costs)
    for chain, order in search.chains(candidates):
        plan = in_file_layers(chain, layers_in(spans, order), needs)
        bottleneck_s = predicted.rate(plan).bottleneck_s
        if bottleneck_s < best.bottleneck_s * (1 - _TOLERANCE):
            best = OrderedPlan(plan, bottleneck_s, lower_s)
    return replace(best, lower_s=min(lower_s, best.bottleneck_s))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """`cuts`: the best chain's, if any; `orders`: others to try, too. No chain over any order is below `lower_s`."""

    cuts: BestCuts | None
    orders: tuple[Order, ...]
    lower_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    costs: Costs
    network: GroupNeeds
    groups: GroupCosts
    goal: Goal
    limits: OrderLimits

    def candidates(self, file_s: float) -> _Candidates:
        # `best_cuts` ignores copies, and places that share a link: if there may be such, its result is only one of
        # several guesses.
        guess = self.goal.replicate or self.groups.shares_links
        below_s = math.inf if guess else file_s
        orders = tuple(self._good_orders()) if guess else ()
        every = every_downset(self.network, self.limits.most_downsets)
        cuts = None if every is None else self._best(every, below_s)
        if cuts is not None:
            lower_s = 0.0 if self.goal.replicate else min(cuts.bottleneck_s, below_s) * (1 - _TOLERANCE)
            return _Candidates(cuts if cuts.cuts else None, orders, lower_s)
        cuts = self._nearby(below_s)
        return _Candidates(cuts, orders if cuts is not None else tuple(self._good_orders()))

    def chains(self, candidates: _Candidates) -> Iterator[tuple[Plan, Order]]:
        """Yield chains with their orders: of the exact planner over each order, then that of the cuts."""
        cuts = candidates.cuts
        orders = candidates.orders if cuts is None else (order_through(cuts.cuts), *candidates.orders)
        for order in dict.fromkeys(orders):
            if self.goal.should_stop():
                break
            costs = reordered_costs(self.costs, self.network.spans, order)
            solution = exact_plan(costs, self.goal)
            if solution.plan is not None:
                yield solution.plan, order
        if cuts is not None:
            yield self._chain(cuts), orders[0]

    def _chain(self, cuts: BestCuts) -> Plan:
        free = [iter(places) for places in self.groups.places]
        first, done = 0, 0
        stages: list[tuple[int, int, str]] = []
        for downset, kind in zip(cuts.cuts, cuts.kinds, strict=True):
            added = downset & ~done
            count = sum(end - start + 1 for at, (start, end) in enumerate(self.network.spans) if added >> at & 1)
            stages.append((first, first + count - 1, next(free[kind])))
            first, done = first + count, downset
        return Plan.of(stages)

    def _best(self, downsets: Sequence[Downset], below_s: float) -> BestCuts | None:
        return best_cuts(self.groups, downsets, below_s, self.goal, self.limits.most_work)

    def _good_orders(self) -> list[Order]:
        """Good orders other than the file's, whose best chain is known."""
        return good_orders(self.network, self.groups.time_s.min(axis=1).tolist())[1:]

    def _nearby(self, below_s: float) -> BestCuts | None:
        """The best chain among downsets along good orders, then repeatedly near the cuts of the best chain so far."""
        family = base = downsets_along([tuple(range(len(self.network.spans))), *self._good_orders()])
        # Slack, so that the search can go on from the file's order if no other is better.
        below_s *= 1 + 1e-6
        best: BestCuts | None = None
        for _ in range(_MOST_ROUNDS):
            family_best = self._best(family, below_s)
            if family_best is None or not family_best.cuts:
                break
            best, below_s = family_best, family_best.bottleneck_s * (1 - _TOLERANCE)
            each = max(1, (self.limits.most_downsets - len(base)) // len(best.cuts))
            beside = (close for cut in best.cuts for close in (cut, *islice(near(self.network, cut), each)))
            family = sorted({*base, *beside}, key=lambda downset: (downset.bit_count(), downset))
        return best


def _search(costs: Costs, needs: Sequence[frozenset[int]], goal: Goal, limits: OrderLimits) -> _Search:
    spans = groups_of(len(costs.layers), costs.legal_cuts)
    most = min(len(costs.places), len(spans), goal.most_stages or len(spans))
    return _Search(costs, group_needs(spans, needs), group_costs(costs), replace(goal, most_stages=most), limits)


def reordered_costs(costs: Costs, spans: Sequence[Span], order: Sequence[int]) -> Costs:
    """Costs with runs of layers that no cut divides (`spans`) in another order, in which cuts cost nothing.

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

    A run of layers may be several runs in the file's order. A stage waits only for the stages from which it reads, so
    that independent ones may compute a frame at the same time. The result is a chain if it is one in the file's order.
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
