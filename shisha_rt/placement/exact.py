"""The optimum on any graph, proven, by elimination of the variables of its cost network.

The time is linear in the operators where the treewidth of the network is bounded. With a helper variable for each
tensor of several consumers the networks of the usual CNNs have treewidth at most 2. A network may be too wide for it:
how large its tables would be is known before the first is made. Then the problem is narrowed (`narrowing`), which
mostly ends with the optimum too; if not, with what could be proven, and HiGHS is asked for something better.

Costs are added up in floating point: the optimum is one up to that rounding.
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
"""Of a program for HiGHS: beyond that it finds nothing in its time."""
_HIGHS_S: Final = 60.0
"""Without a time limit."""
_OF_THE_TIME: Final = 0.9
"""The rest is for what its answer may prove."""
_TOO_WIDE: Final = "the problem is too wide to be eliminated"


def exact_placement(
    problem: Problem, limits: WidthLimits | None = None, left_s: LeftSeconds = forever
) -> PlacementSolution:
    """A placement of least cost, and proven to be; where that is beyond `limits` or the time left, a good one.

    That is looked at many times a second, but while HiGHS runs, which keeps to what is left. `statistics["over_limit"]`
    is 1 where the problem as a whole was too wide.
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
            # The checker adds the same costs in another order; that can only lower the bound, by a rounding.
            bound_s = min(least.total, cost(problem, assignment).total_s)
            return PlacementSolution(assignment, Outcome.OPTIMAL, bound_s, statistics=statistics)
    narrow = _narrowed(problem, limits, left_s)
    if narrow.is_settled:
        return PlacementSolution(narrow.assignment, Outcome.OPTIMAL, narrow.lower_bound_s, statistics=statistics)
    reason = STOPPED if should_stop() else _TOO_WIDE
    return PlacementSolution(narrow.assignment, Outcome.FEASIBLE, narrow.lower_bound_s, reason, statistics)


def _narrowed(problem: Problem, limits: WidthLimits, left_s: LeftSeconds) -> Narrowed:
    """Narrow the problem in half of the time.

    What is left open, and is small, goes to HiGHS in the rest, if scipy is there.
    """
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
