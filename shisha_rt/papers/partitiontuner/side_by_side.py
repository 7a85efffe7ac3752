"""A plan whose branches run in parallel, for the least unloaded latency by costs of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shisha_rt.costs.costs import Costs
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts, costs_of_layers
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan

_MOST_BRANCHES: Final = 4
"""Most places that branches are spread over."""


def side_by_side(
    costs: Costs, needs: Sequence[frozenset[int]], handover_s: float, far: frozenset[str]
) -> SchemePlan | None:
    """The best plan of `forkjoin` over the fastest places of this host; None without one. `far`: places of other hosts.

    `needs` (layers,): the earlier layers from which each reads a tensor.
    """
    processors = costs_of_layers(costs, needs, handover_s)
    return scheme_plan("forkjoin", processors.on(_quickest(processors, far)))


def _quickest(processors: ProcessorCosts, far: frozenset[str]) -> list[str]:
    """The places of this host that take the least time for the whole network; more of them seldom help."""
    whole_s = [sum(row[place] for row in processors.time_s) for place in range(len(processors.places))]
    near = (place for place, name in enumerate(processors.places) if name not in far)
    order = sorted(near, key=whole_s.__getitem__)
    return [processors.places[place] for place in order[:_MOST_BRANCHES]]
