"""Places that nothing tells apart: what is worked out for one of them holds for all."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from shisha_rt.costs.costs import Costs, stage_bytes
from shisha_rt.costs.operator_costs import OperatorCosts


def kinds_of(costs: Costs) -> tuple[tuple[int, ...], ...]:
    """Places (indices) that no layer's time and no memory's size tells apart, in the order of the first of each kind.

    A memory that holds the whole model is as good as one without a limit.
    """
    whole_bytes = stage_bytes(costs, 0, len(costs.layers) - 1)

    def entry(index: int) -> Hashable:
        memory_bytes = costs.places[index].memory_bytes
        limited = memory_bytes is not None and memory_bytes < whole_bytes
        # + 0.0: a time of -0.0 is one of 0.0.
        return (costs.time_s[:, index] + 0.0).tobytes(), memory_bytes if limited else None

    return _together([entry(index) for index in range(len(costs.places))])


def first_alike(costs: Mapping[str, OperatorCosts]) -> Mapping[str, str]:
    """For each place the first that has the same devices, on which all operators cost the same."""
    places = list(costs)
    kinds = _together([(own.devices, own.time_s.tobytes()) for own in costs.values()])
    first = {place: kind[0] for kind in kinds for place in kind}
    return {name: places[first[index]] for index, name in enumerate(places)}


def _together(entries: Sequence[Hashable]) -> tuple[tuple[int, ...], ...]:
    """Indices of equal entries."""
    found: dict[Hashable, list[int]] = {}
    for index, entry in enumerate(entries):
        found.setdefault(entry, []).append(index)
    return tuple(map(tuple, found.values()))
