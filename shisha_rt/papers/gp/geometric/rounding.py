"""Rounding of real shares to whole blocks of the layer; candidates are judged by `layer_cost`, all transfers paid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice, permutations
from typing import Final, TypeAlias

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.papers.gp.chain import faults
from shisha_rt.papers.gp.problem import ROUNDING, SplitLayer, SplitProblem, able_devices, layer_cost

_MOST: Final = 4096
"""Most roundings of a layer that are evaluated."""
_BARELY: Final = 1.05
"""Units. A share up to this may only be the solver's lower bound of one unit, so rounding it to 0 is tried, too."""

_NONE: Final = 1e-30
"""Stands for 0 as a divisor."""
_LEAST_GAIN: Final = 1e-12

WholeShares: TypeAlias = tuple[int, ...]
"""(devices,): units."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """`shares` (layers, devices): units. `faults`: messages on what is wrong with them, such as exceeded limits."""

    shares: tuple[WholeShares, ...]
    faults: tuple[str, ...] = ()


def roundings(layer: SplitLayer, shares: Sequence[float]) -> Iterator[WholeShares]:
    """Yield all roundings up and down, the one of largest remainders first; then those in which shares of about a unit
    are 0 and the other shares grow in proportion. Each device in turn gets the incomplete last block.
    """
    barely = [device for device, units in enumerate(shares) if 0 < units <= _BARELY]
    for without in chain.from_iterable(combinations(barely, count) for count in range(len(barely) + 1)):
        rest = [0.0 if device in without else units for device, units in enumerate(shares)]
        if any(rest):
            yield from _up_and_down(layer, rest)


def _up_and_down(layer: SplitLayer, shares: Sequence[float]) -> Iterator[WholeShares]:
    blocks, over = divmod(layer.units, layer.block)
    total = math.fsum(shares)
    exact = [units / total * blocks for units in shares]
    down = [math.floor(units + 1e-9) for units in exact]
    used = [device for device, units in enumerate(shares) if units]
    by_remainder = sorted(used, key=lambda device: down[device] - exact[device])
    for up in combinations(by_remainder, blocks - sum(down)):
        whole = [(units + (device in up)) * layer.block for device, units in enumerate(down)]
        if not over:
            yield tuple(whole)
            continue
        for device in sorted(used, key=lambda device: (device in up, down[device] - exact[device])):
            yield tuple(units + over * (other == device) for other, units in enumerate(whole))


def best_rounding(problem: SplitProblem, shares: Sequence[Sequence[float]]) -> Rounded:
    """Round each layer to the least excess over limits, then the least cost. If limits are exceeded, blocks are moved
    until they are not, each time the block of the least cost for the excess that it removes; an excess that remains is
    among the faults. A device that cannot run a layer's groups, or hold a unit of it, gets no share.
    """
    able = able_devices(problem).tolist()
    whole = [
        min(
            islice(roundings(layer, [units * can for units, can in zip(share, row, strict=True)]), _MOST),
            key=lambda units, layer=layer: _badness(problem, layer, units),  # type: ignore[misc]
        )
        for layer, share, row in zip(problem.layers, shares, able, strict=True)
    ]
    used = np.array(
        [_used(problem, layer, layer_units) for layer, layer_units in zip(problem.layers, whole, strict=True)]
    )
    while _over(problem, used) > 0:
        move = max(_relieving(problem, able, whole, used), default=None)
        if move is None:
            break
        _, n, whole[n] = move
        used[n] = _used(problem, problem.layers[n], whole[n])
    return Rounded(tuple(whole), tuple(faults(problem, whole)))


def _relieving(
    problem: SplitProblem, able: Sequence[Sequence[bool]], whole: Sequence[WholeShares], used: Floats
) -> Iterator[tuple[float, int, WholeShares]]:
    """Yield moves of a block that lessen the excess: by how much for the cost, the layer's index and its new shares."""
    over = _over(problem, used)
    for n, (layer, now) in enumerate(zip(problem.layers, whole, strict=True)):
        cost = layer_cost(problem, layer, now)
        for then in _one_moved(layer, now):
            cost_then = layer_cost(problem, layer, then)
            if not math.isfinite(cost_then) or any(units and not can for units, can in zip(then, able[n], strict=True)):
                continue
            gain = over - _over(problem, _with_row(used, n, _used(problem, layer, then)))
            if gain > _LEAST_GAIN:
                yield gain / max(cost_then - cost, _NONE), n, then


def _badness(problem: SplitProblem, layer: SplitLayer, shares: WholeShares) -> tuple[bool, float, float]:
    """Whether a share cannot run; the excess over limits; the cost."""
    value = layer_cost(problem, layer, shares)
    return math.isinf(value), _over(problem, _used(problem, layer, shares)[None, :]), value


def _one_moved(layer: SplitLayer, shares: WholeShares) -> Iterator[WholeShares]:
    """Yield the shares with one block moved from one device to another."""
    for source, target in permutations(range(len(shares)), 2):
        block = min(layer.block, shares[source])
        if block:
            yield tuple(
                units - block * (device == source) + block * (device == target) for device, units in enumerate(shares)
            )


def _used(problem: SplitProblem, layer: SplitLayer, shares: WholeShares) -> Floats:
    """(limits of all devices,): use by a layer, as multiples of the limits."""
    return np.array(
        [
            device.resources[name].at(layer.share(units)) / max(limit, _NONE) if units else 0.0
            for device, units in zip(problem.devices, shares, strict=True)
            for name, limit in device.limits.items()
        ]
    )


def _over(problem: SplitProblem, used: Floats) -> float:
    """Total excess over the limits, as multiples of them; `used` (layers, limits of all devices): use by each layer."""
    together = np.array([device.one_for_all for device in problem.devices for _ in device.limits], dtype=bool)
    return float(_beyond(used[:, together].sum(axis=0)).sum() + _beyond(used[:, ~together]).sum())


def _beyond(used: Floats) -> Floats:
    return np.where(used > 1 + ROUNDING, used - 1, 0.0)


def _with_row(used: Floats, index: int, row: Floats) -> Floats:
    changed = used.copy()
    changed[index] = row
    return changed
