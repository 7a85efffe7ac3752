"""The best plan with layers split: the best chain over pieces of layers, its shares then chosen exactly.

Layers that take long, or that no place has the memory for, are cut into pieces, and `exact_plan` finds the best chain
over these. That gives the order of teams; `balanced` then finds the joins, and the shares in blocks, the smallest steps
in which units can be shared. With few places all orders are tried. For latency see `quickest_split`.

The lower bound holds for chains with the named layers split in any shares, each along any axis. Pieces are coarser than
shares, but moving a boundary to the next piece makes a stage longer by at most a piece: so the bound of chains over
pieces, less the longest piece, is a bound for any shares. The join is computed on one place, not shared as the pieces
are, so the bound is lowered by the largest join's part of the time. A layer is split only if that gains something.

Places of other hosts have no shards: layers are split over this host's places, if that is better than all hosts' places
without splits. A bound would then hold for this host alone, so none is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

import numpy as np

from shisha_rt.costs.alike import among, kinds_of
from shisha_rt.costs.costs import HANDOVER_S, Costs, stage_bytes
from shisha_rt.costs.team_costs import TeamCosts, plan_period_s, team_costs
from shisha_rt.model.spans import spans_listed
from shisha_rt.model.split import MOST_SUMMED, Splittable
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.balance import Teams, balanced
from shisha_rt.planner.shards.pieces import Piece, pieces_of, refined, split_spans, unrefined
from shisha_rt.planner.shards.quickest_split import alone_s, quickest_split
from shisha_rt.planner.shards.spread import spread
from shisha_rt.planner.solution import PlanSolution

_MOST_PIECES: Final = 16
"""Pieces of a layer, before the best chain is known."""
_MOST_POSITIONS: Final = 180
"""Whole layers and pieces together: planning time grows with their number."""
_MOST_FINE_PIECES: Final = 256
_MOST_FINE_POSITIONS: Final = 640
"""The same two limits, for when the order of teams and the layers to split are known (`_in_fine_pieces`)."""
_LEAST_SHARE: Final = 1 / 64
"""A layer is worth splitting only if it takes at least this share of the slowest stage's time."""
_MOST_ORDERS: Final = 24
_MOST_SHIFTED: Final = 8
"""Most shards of a split whose shares are changed to allow for its join: all pairs of shards are tried."""
_MOST_OTHERS: Final = 8
"""How many splits along axes other than the most promising are tried."""
_GAIN: Final = 1e-9
"""Relative gain below which a difference is only rounding."""


def split_plan(
    costs: Costs,
    whole: PlanSolution,
    goal: Goal = Goal(),  # noqa: B008 (it is frozen)
    *,
    handover_s: float = HANDOVER_S,
) -> PlanSolution:
    """Return a better plan with layers split as `costs` allow; if there is none, `whole`, the answer of `exact_plan`.

    `most_stages` of `goal` limits the teams that serve a frame: a team's shards and other layers count as one stage.
    `handover_s`: from one stage to the next; a split for latency has to gain more than its hand-overs take.

    If latency is the objective and no plan without splits can run, the answer is the plan of the best throughput.
    """
    if not costs.splits.splittables or goal.objective == "energy":  # a split saves no energy
        return whole
    # Shards along the rows of several layers compute some rows twice, and `costs` do not say how many.
    splittables = tuple(
        splittable
        for splittable in costs.splits.splittables
        if splittable.axis != "rows" or _is_uncut(costs, splittable)
    )
    costs = replace(costs, splits=replace(costs.splits, splittables=splittables))
    if len(costs.far) == len(costs.places):
        return whole
    if goal.objective == "throughput" or whole.plan is None:
        fastest = _fastest(costs, whole, goal)
        if fastest.plan is None:
            return fastest
        if costs.far and fastest.plan is whole.plan:
            return whole
        # The bound holds for throughput, and for this host's places alone.
        proven = goal.objective == "throughput" and not costs.far
        return fastest if proven else replace(fastest, outcome=Outcome.FEASIBLE, lower_bound_s=None)
    return _of_least_latency(costs, whole, whole.plan, goal, handover_s)


def _of_least_latency(
    costs: Costs, whole: PlanSolution, whole_plan: Plan, goal: Goal, handover_s: float
) -> PlanSolution:
    predicted = team_costs(costs)
    starts = list(_on_single_places(predicted, whole_plan))
    plans = [quickest_split(predicted, start, handover_s) for start in starts]
    split = [plan for plan in plans if plan.splits and len(plan.places) <= (goal.most_stages or len(costs.places))]
    # A whole plan may have needless stages: a split that only saves their hand-overs is no gain.
    without_s = min(alone_s(predicted, plan, handover_s) for plan in (whole_plan, *starts))
    best = min(split, key=lambda plan: alone_s(predicted, plan, handover_s), default=whole_plan)
    # A bound for plans without splits does not hold for plans with splits.
    return replace(
        whole,
        answer=best if alone_s(predicted, best, handover_s) < without_s else whole_plan,
        outcome=Outcome.FEASIBLE,
        lower_bound_s=None,
        latency_proven=False,
        space="plans with layers split",
    )


def plan_that_fits(costs: Costs, goal: Goal) -> PlanSolution:
    """The best plan without splits; if none can run, the best with splits."""
    whole = exact_plan(costs, goal)
    return split_plan(costs, whole, goal) if whole.outcome is Outcome.INFEASIBLE else whole


def _is_uncut(costs: Costs, splittable: Splittable) -> bool:
    """Whether there is no legal cut between the layers of a splittable."""
    return bool(np.isnan(costs.transfer_s[splittable.first : splittable.last]).all())


def _on_single_places(predicted: TeamCosts, chain: Plan) -> Iterator[Plan]:
    """Yield plans for `quickest_split` to start from: all layers on the quickest place; and the chain with only the
    quickest team of each stage, if these are single places.
    """
    last = len(predicted.costs.layers) - 1
    plans = [Plan.of([(0, last, place.name)]) for place in predicted.costs.places]
    seconds, plan = min(((predicted.alone_s(plan)[0][0], plan) for plan in plans), key=lambda timed: timed[0])
    if math.isfinite(seconds):
        yield plan
    with_alone = zip(chain.stages, predicted.alone_s(chain), strict=True)
    quickest = [(stage, min(zip(times, stage.teams, strict=True))[1]) for stage, times in with_alone]
    if all(len(team) == 1 for _, team in quickest):
        yield Plan(tuple(replace(stage, teams=(team,)) for stage, team in quickest))


def _fastest(costs: Costs, whole: PlanSolution, goal: Goal) -> PlanSolution:
    """The plan of the best throughput, on this host's places if it has splits; `whole` if none is better.

    Each layer is split along its most promising axis first; then other axes are tried in turn, and kept if faster.
    """
    whole_s = plan_period_s(costs, whole.plan)  # before `costs` lose the other hosts' places, which `whole` may use
    if costs.far:
        near = [place.name for place in costs.places if not place.host]
        costs = replace(among(costs, near, [1.0] * len(near)), tensors=())

    def seconds_of(solution: PlanSolution) -> float:
        return whole_s if solution.plan is whole.plan else plan_period_s(costs, solution.plan)

    counts = _counts(costs, whole_s)
    if not counts:
        return whole
    others = [other for other in costs.splits.splittables if any(_may_add_to(axis, other) for axis in counts)]
    best = first = _along(costs, counts, whole, whole_s, goal, others)
    seconds = _least_seconds(costs)
    split = set() if first.plan is None else split_spans(first.plan)
    others.sort(key=lambda other: (other.span not in split, -_span_s(seconds, other)))
    for other in others[:_MOST_OTHERS]:
        if goal.should_stop() or first.outcome is Outcome.OPTIMAL:
            break
        tried = {
            **{splittable: count for splittable, count in counts.items() if splittable.span != other.span},
            other: min(_MOST_PIECES, other.blocks),
        }
        solution = _along(costs, tried, whole, whole_s, goal)
        if seconds_of(solution) < (1 - _GAIN) * seconds_of(best):
            best, counts = solution, tried
    if best is first or best.plan is None:
        return best
    # Only the first bound allows for all axes, and only for the layers that its space names.
    bound_s = first.lower_bound_s if first.space == best.space else None
    return best.answered(best.plan, seconds_of(best), bound_s, _GAIN)


def _may_add_to(splittable: Splittable, other: Splittable) -> bool:
    """Whether splitting along `other`'s axis may be faster: not if `splittable` allows its shares without a join."""
    same_shares = other.block * splittable.units % (other.units * splittable.block) == 0
    as_good = same_shares and not (splittable.joined or splittable.axis == "rows" or other.join_part)
    return other != splittable and other.span == splittable.span and not as_good


def _along(
    costs: Costs,
    counts: Mapping[Splittable, int],
    whole: PlanSolution,
    whole_s: float,
    goal: Goal,
    others: Sequence[Splittable] = (),
) -> PlanSolution:
    """The fastest plan with layers split. `counts`: into how many pieces each splittable is cut to find the order of
    teams. If no plan is faster than `whole`, which takes `whole_s`, the answer is `whole`'s plan.

    The lower bound allows for the axes of `others`, too.
    """
    pieces = pieces_of(len(costs.layers), counts)
    fine = refined(costs, pieces)
    chain = exact_plan(fine, replace(goal, objective="throughput", latency_states=0))
    plain = not goal.replicate and (goal.most_stages is None or goal.most_stages >= len(costs.places))
    plans = _over_pieces(costs, pieces, chain.plan, goal, _orders(costs) if plain else ())
    spread_plans: list[Plan] = []
    if math.isinf(whole_s) and plain:
        too_heavy = (splittable for splittable in counts if not _has_room(costs, splittable))
        spread_plans = [plan for splittable in too_heavy if (plan := spread(costs, splittable, goal)) is not None]
    plan = min(
        filter(_can_be_summed(costs), (*plans, *spread_plans)),
        key=lambda plan: plan_period_s(costs, plan),
        default=None,
    )
    plan_s = plan_period_s(costs, plan)
    if plan_s >= (1 - _GAIN) * whole_s:
        plan, plan_s = whole.plan, whole_s
    split = f"layers {spans_listed(sorted(splittable.span for splittable in counts))} split"
    if plan is None or math.isinf(plan_s):
        return (
            replace(whole, reason=f"{whole.reason}; no plan with {split} was found either") if whole.reason else whole
        )
    if plan in spread_plans:  # not a chain over pieces, so the bound does not hold
        return replace(chain.answered(plan, plan_s, None, _GAIN), reason=None, space=f"plans with {split}")
    bound_s = _bound_s(costs, chain.lower_bound_s, (*counts, *others), _longest_s(fine, pieces, counts, others))
    return replace(chain.answered(plan, plan_s, bound_s, _GAIN), space=f"{chain.space}, {split} in any shares")


def _over_pieces(
    costs: Costs, pieces: Sequence[Piece], chain: Plan | None, goal: Goal, orders: Iterable[tuple[Teams, ...]]
) -> list[Plan]:
    """The plan of a chain over pieces, and those of balanced shares, each with its best joins; [] without a chain."""
    if chain is None:
        return []
    unused = [place.name for place in costs.places] if goal.most_stages is None else []
    plans = [unrefined(pieces, chain), *_balanced_plans(costs, pieces, chain, orders)]
    return [_with_best_joins(costs, plan, unused) for plan in plans]


def _bound_s(
    costs: Costs, chain_bound_s: float | None, splittables: Iterable[Splittable], longest_piece_s: float
) -> float | None:
    """Lower bound for any shares, from that of chains over pieces (see the module); None: there is none."""
    if chain_bound_s is None or costs.splits.shard_times:  # measured times of shards, which pieces do not have
        return None
    least_part = costs.splits.least_scale * (1 - max(splittable.join_part for splittable in splittables))
    return max(0.0, least_part * chain_bound_s - longest_piece_s)


def _balanced_plans(
    costs: Costs, pieces: Sequence[Piece], chain: Plan, more_orders: Iterable[tuple[Teams, ...]]
) -> Iterator[Plan]:
    """Yield the best plan with the teams in the chain's order or one of `more_orders`: in pieces, then in blocks."""
    orders = [tuple(stage.teams for stage in chain.stages), *more_orders]
    alike = [order for order in orders if all(len({len(team) for team in teams}) == 1 for teams in order)]
    chains = [(*balanced(costs, pieces, order), order) for order in alike]
    _, plan, order = min(chains, key=lambda timed: timed[0], default=(math.inf, None, ()))
    if plan is not None:
        yield plan
        yield from _in_fine_pieces(costs, plan, order)


def _with_best_joins(costs: Costs, plan: Plan, places: Iterable[str]) -> Plan:
    """The plan with each join that is a stage of its own where it is fastest: on the teams of some stage, or on one of
    `places` that the plan does not use. Shares are adapted to the join.
    """
    for splittable in costs.splits.splittables:
        joins = [
            at
            for at, stage in enumerate(plan.stages)
            if stage.split is not None and stage.split.along == splittable.along and stage.split.joins
        ]
        if not joins or not splittable.join_part:
            continue
        (at,) = joins
        tried = [plan]
        stage = plan.stages[at]
        if stage.work == (splittable.span,):
            kind_of = team_costs(costs).kind_of
            unused = {kind_of[place]: ((place,),) for place in places if place not in plan.places}
            for teams in dict.fromkeys([*(other.teams for other in plan.stages), *unused.values()]):
                joined = replace(stage, teams=teams)
                tried.append(Plan((*plan.stages[:at], joined, *plan.stages[at + 1 :])))
        plan = min(
            (_shifted(costs, joined, splittable) for joined in tried), key=lambda plan: plan_period_s(costs, plan)
        )
    return plan


def _shifted(costs: Costs, plan: Plan, splittable: Splittable) -> Plan:
    """Move blocks between two shards of a split as long as that is faster: many at once, then fewer."""
    best_s = plan_period_s(costs, plan)
    (shares,) = {stage.split.shares for stage in plan.stages if stage.split and stage.split.along == splittable.along}
    step = 1 << (max(shares) // splittable.block).bit_length()
    while step and len(shares) <= _MOST_SHIFTED:
        moved: list[tuple[float, Plan, tuple[int, ...]]] = []
        for giver, taker in permutations(range(len(shares)), 2):
            units = step * splittable.block
            if shares[giver] > units:
                others = tuple(share - units * (at == giver) + units * (at == taker) for at, share in enumerate(shares))
                with_others = _with_shares(plan, splittable, others)
                moved.append((plan_period_s(costs, with_others), with_others, others))
        least_s, fastest, others = min(moved, key=lambda move: move[0], default=(math.inf, plan, shares))
        if least_s < (1 - _GAIN) * best_s:
            best_s, plan, shares = least_s, fastest, others
        else:
            step //= 2
    return plan


def _with_shares(plan: Plan, splittable: Splittable, shares: tuple[int, ...]) -> Plan:
    return Plan(
        tuple(
            replace(stage, split=replace(stage.split, shares=shares))
            if stage.split and stage.split.along == splittable.along
            else stage
            for stage in plan.stages
        )
    )


def _has_room(costs: Costs, splittable: Splittable) -> bool:
    """Whether some place has the memory for all layers of a splittable, unsplit."""
    needed = stage_bytes(costs, *splittable.span)
    return any(needed <= place.room_bytes for place in costs.places)


def _counts(costs: Costs, whole_s: float) -> dict[Splittable, int]:
    """The layers to split, and how many pieces each is cut into: the longest first, up to `_MOST_POSITIONS`."""
    seconds = _least_seconds(costs)
    splittables = _disjoint(costs, seconds)
    counts: dict[Splittable, int] = {}
    left = _MOST_POSITIONS - len(costs.layers)
    for splittable in sorted(splittables, key=lambda splittable: -_span_s(seconds, splittable)):
        count = min(_MOST_PIECES, splittable.blocks, left + 1)
        if count < 2 or (math.isfinite(whole_s) and _span_s(seconds, splittable) < _LEAST_SHARE * whole_s):
            continue
        counts[splittable] = count
        left -= count - 1
    return dict(sorted(counts.items(), key=lambda item: item[0].first))


def _disjoint(costs: Costs, seconds: Sequence[float]) -> list[Splittable]:
    """Choose splittables that do not overlap: short runs of layers first, then axes that leave the least to join."""
    axes = ("channels", "columns", "groups", "rows", "inputs")
    most_bytes = max(place.room_bytes for place in costs.places)

    def rank(splittable: Splittable) -> tuple[int, bool, float, bool, int]:
        too_heavy = splittable.axis == "rows" and costs.weight_bytes(*splittable.span) > most_bytes
        return (
            splittable.last - splittable.first,
            too_heavy,
            round(splittable.join_part, 1),
            splittable.summed,
            axes.index(splittable.axis),
        )

    splittables: list[Splittable] = []
    for splittable in sorted(costs.splits.splittables, key=rank):
        overlaps = any(other.first <= splittable.last and splittable.first <= other.last for other in splittables)
        if splittable.blocks > 1 and not overlaps and math.isfinite(_span_s(seconds, splittable)):
            splittables.append(splittable)
    return splittables


def _least_seconds(costs: Costs) -> list[float]:
    """(layers,): seconds on the quickest place; inf: no place can run the layer."""
    return np.where(np.isnan(costs.time_s), np.inf, costs.time_s).min(axis=1).tolist()  # type: ignore[no-any-return]


def _span_s(seconds: Sequence[float], splittable: Splittable) -> float:
    return math.fsum(seconds[splittable.first : splittable.last + 1])


def _orders(costs: Costs) -> Iterator[tuple[Teams, ...]]:
    """Yield all orders of all places, up to exchanges within a kind; none if there are more than `_MOST_ORDERS`."""
    kinds = kinds_of(costs)
    different = math.factorial(len(costs.places)) // math.prod(math.factorial(len(kind)) for kind in kinds)
    if different > _MOST_ORDERS:
        return
    for order in _distinct_orders([len(kind) for kind in kinds]):
        free = [iter(kind) for kind in kinds]
        yield tuple(((costs.places[next(free[kind])].name,),) for kind in order)


def _distinct_orders(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the distinct orders of a multiset of kinds, with `counts[kind]` places of each."""
    if not any(counts):
        yield ()
    for kind, count in enumerate(counts):
        if count:
            for rest in _distinct_orders([*counts[:kind], count - 1, *counts[kind + 1 :]]):
                yield (kind, *rest)


def _in_fine_pieces(costs: Costs, plan: Plan, order: Sequence[Teams]) -> Iterator[Plan]:
    """Yield the best plan with the same layers split, in pieces of a block, or as fine as the limits allow, if any."""
    chosen = {stage.split.along for stage in plan.stages if stage.split is not None}
    splittables = [splittable for splittable in costs.splits.splittables if splittable.along in chosen]
    if not splittables:
        return
    most = min(_MOST_FINE_PIECES, max(2, (_MOST_FINE_POSITIONS - len(costs.layers)) // len(splittables)))
    pieces = pieces_of(len(costs.layers), dict.fromkeys(splittables, most))
    _, finest = balanced(costs, pieces, order)
    if finest is not None:
        yield finest


def _can_be_summed(costs: Costs) -> Callable[[Plan], bool]:
    """A check that no split of a plan has more partial sums than there are buffers for."""
    summed = {splittable.along for splittable in costs.splits.splittables if splittable.summed}

    def check(plan: Plan) -> bool:
        splits = [stage.split for stage in plan.stages if stage.split is not None]
        return all(len(split.shares) <= MOST_SUMMED for split in splits if split.along in summed)

    return check


def _longest_s(
    fine: Costs, pieces: Sequence[Piece], counts: Mapping[Splittable, int], others: Sequence[Splittable]
) -> float:
    """The longest seconds, on any place, of a piece that can be cut finer or, as `others` allow, along another axis."""
    spans = {other.span for other in others}
    coarse = [
        piece.splittable is not None
        and (counts[piece.splittable] < piece.splittable.blocks or piece.splittable.span in spans)
        for piece in pieces
    ]
    if not any(coarse):
        return 0.0
    return float(np.nan_to_num(fine.time_s[coarse]).max())
