"""The optimum on any graph, proven, by elimination of the variables of its cost network.

The time is linear in the operators where the treewidth of the network is bounded. With a helper variable for each
tensor of several consumers the networks of the usual CNNs have treewidth at most 2.

Costs are added up in floating point: the optimum is one up to that rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shisha_rt.errors import BadInput
from shisha_rt.outcome import Outcome
from shisha_rt.placement.als import als
from shisha_rt.placement.check import cost
from shisha_rt.placement.elimination import elimination_order, minimise
from shisha_rt.placement.milp import milp
from shisha_rt.placement.network import cost_network
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import Solution

LIMIT_ENTRIES: Final = 2**25
"""Entries of all tables together: 256 MiB, and a few seconds of work."""

FALLBACK_TIME_LIMIT_S: Final = 60.0


def exact_placement(
    problem: Problem, limit_entries: int = LIMIT_ENTRIES, time_limit_s: float | None = FALLBACK_TIME_LIMIT_S
) -> Solution:
    """A placement of least cost.

    If that takes tables of more than `limit_entries` entries, `statistics["over_limit"]` is 1 and the solution is the
    better of `als` and what `milp` finds in `time_limit_s`, with its bound; without scipy there is no bound.
    """
    network = cost_network(problem, limit_entries)
    if network is None:
        return _fallback(problem, time_limit_s)
    order = elimination_order(network.sizes, [scope for scope, _ in network.factors], limit_entries)
    if order is None:
        return _fallback(problem, time_limit_s)
    cost_s, values = minimise(network.sizes, network.factors, order)
    assignment = tuple([int(states.device[values[node]]) for node, states in enumerate(network.states)])
    statistics = {
        "over_limit": 0.0,
        "variables": float(len(network.sizes)),
        "table_entries": float(order.entries),
        "width": float(order.width),
    }
    # The checker adds the same costs in another order; that can only lower the bound, by a rounding.
    return Solution(assignment, Outcome.OPTIMAL, min(cost_s, cost(problem, assignment).total_s), statistics)


def _fallback(problem: Problem, time_limit_s: float | None) -> Solution:
    statistics = {"over_limit": 1.0}
    quick = als(problem)
    try:
        found = milp(problem, time_limit_s)
    except BadInput:  # scipy is missing: nothing is proven, but there is an answer
        return replace(quick, statistics=statistics)
    if found.outcome is not Outcome.OPTIMAL:
        assignments = [a for a in (quick.assignment, found.assignment) if a is not None]
        best = min(assignments, key=lambda assignment: cost(problem, assignment).total_s)
        found = Solution(best, Outcome.FEASIBLE, found.lower_bound_s)
    return replace(found, statistics=statistics)
