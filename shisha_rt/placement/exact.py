"""The proven optimum on any graph, by eliminating the variables of its cost network.

The time is linear in the operators if the treewidth of the network is bounded. With a helper variable for each tensor
of several consumers the networks of the usual CNNs have treewidth at most 2. If a network is too wide, which is known
before any table is made, the problem is narrowed (`narrowing`). That mostly finds the optimum, too; if not, it leaves
an assignment with a proven bound, and HiGHS looks for a better assignment.

Costs are floating-point sums: the optimum is exact up to their rounding.
"""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.errors import BadInput
from shisha_rt.outcome import STOPPED, LeftSeconds, Outcome, forever, within
from shisha_rt.placement.check import cost
from shisha_rt.placement.elimination import minimise
from shisha_rt.placement.milp import column_count, least_by_program
from shisha_rt.placement.narrowing import Narrowed, WidthLimits, bounded, narrowed, quick_assignment
from shisha_rt.placement.network import cost_network
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution

_MOST_COLUMNS: Final = 1 << 16
"""Largest program given to HiGHS: with more columns it finds nothing in its time."""
_HIGHS_S: Final = 60.0
"""HiGHS's time limit, if the time left is longer."""
_OF_THE_TIME: Final = 0.9
"""HiGHS's share of the time left; the rest is for narrowing with its answer."""
_TOO_WIDE: Final = "the problem is too wide to be eliminated"


def exact_placement(
    problem: Problem, limits: WidthLimits | None = None, left_s: LeftSeconds = forever
) -> PlacementSolution:
    """A placement of proven least cost; if that exceeds `limits` or the time left, a good one.

    The time left is checked many times a second, except while HiGHS runs, which gets a time limit of its own.
    `statistics["over_limit"]` is 1 if the problem as a whole was too wide.
    """
    limits = limits or WidthLimits()
    should_stop = within(left_s)
    network = cost_network(problem)
    order = limits.order(network)
    statistics = {"over_limit": float(order is None), "variables": float(len(network.sizes))}
    if order is not None:
        statistics |= {"table_entries": float(order.entries), "width": float(order.width)}
        least = minimise(network.sizes, network.factors, order, should_stop)
        if least is not None:
            assignment = network.devices(least.values)
            # The checker adds the same costs in another order: its sum may be lower by a rounding error.
            bound_s = min(least.total, cost(problem, assignment).total_s)
            return PlacementSolution(assignment, Outcome.OPTIMAL, bound_s, statistics=statistics)
    narrow = _narrowed(problem, limits, left_s)
    if narrow.is_settled:
        return PlacementSolution(narrow.assignment, Outcome.OPTIMAL, narrow.lower_bound_s, statistics=statistics)
    reason = STOPPED if should_stop() else _TOO_WIDE
    return PlacementSolution(narrow.assignment, Outcome.FEASIBLE, narrow.lower_bound_s, reason, statistics)


def _narrowed(problem: Problem, limits: WidthLimits, left_s: LeftSeconds) -> Narrowed:
    """Narrow the problem in half of the time left, then give a small enough rest to HiGHS, if scipy is installed."""
    highs_s = left_s() / 2 if left_s() < math.inf else 0.0
    start = bounded(problem, quick_assignment(problem, within(left_s, 0.5)))
    if column_count(start.left) > _MOST_COLUMNS:
        highs_s = 0.0
    narrow = narrowed(start, limits, lambda: left_s() - highs_s)
    if narrow.is_settled or left_s() <= 0 or column_count(narrow.left) > _MOST_COLUMNS:
        return narrow
    try:
        assignment = least_by_program(narrow, lambda: min(_HIGHS_S, _OF_THE_TIME * left_s()))
    except BadInput:  # scipy is missing
        return narrow
    better = narrow if assignment is None else narrow.with_assignment(assignment)
    return narrowed(better, limits, left_s) if better.cost_s < narrow.cost_s else narrow
