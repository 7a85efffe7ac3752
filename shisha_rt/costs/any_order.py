"""Whether costs hold for layers in another order than the file's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.links import AS_INPUT, CostTensor


def layer_needs(tensors: Sequence[CostTensor], layer_count: int) -> tuple[frozenset[int], ...]:
    """(layers,): the earlier layers of which each layer reads a tensor; empty if tensors are not known."""
    if not tensors:
        return ()
    needs: list[set[int]] = [set() for _ in range(layer_count)]
    for tensor in tensors:
        for reader in tensor.readers:
            if tensor.made != AS_INPUT and reader < layer_count:
                needs[reader].add(tensor.made)
    return tuple(map(frozenset, needs))


def why_unknown(costs: Costs, needs: Sequence[frozenset[int]]) -> str | None:
    """Why the costs of another order are not known; None: they are."""
    if len(needs) != len(costs.layers):
        return "it is not known which layer reads what (`tensors`)"
    if np.any(costs.transfer_s > 0):
        return "`transfer_s` says what cuts cost in the file's order only"
    return None
