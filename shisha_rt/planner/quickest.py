"""The least latency of a chain whose slowest stage keeps a bound: the sum of its stages' times on their quickest teams.

Latency counts the time of a frame by itself (`alone_s`), the bound the time that teams are busy (`busy_s`).

latency(j, c) = min, over stages (i, j), their quickest teams q, and shares s that have such a team and keep the bound,
of latency(i, c - s) + q's time; c (kinds,) counts the places that may be used. With unlimited places that is a shortest
path. So a stage's time plus the shortest paths before and behind it show at once whether a chain of a given latency can
have the stage. Few stages remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Bools, Floats, Ints
from shisha_rt.outcome import ShouldStop
from shisha_rt.planner.chains import TOLERANCE, Chains, SharedStage, inverse, least_left, least_to, windows

_NONE: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Quickest:
    """`stages`: in pipeline order, each with its lead; empty if no chain keeps the bound and the latency."""

    stages: tuple[SharedStage, ...]
    latency_s: float


@dataclass(frozen=True, slots=True, eq=False)
class _Option:
    """A stage whose quickest team is `lead`. `shares`: minimal ones (indices) with this team that keep the bound."""

    begin: int
    lead: int
    service_s: float
    shares: Ints


def quickest(chains: Chains, bound_s: float, most_latency_s: float, should_stop: ShouldStop) -> Quickest | None:
    """Find a chain of the least latency, at most `most_latency_s`. None if `should_stop` says so."""
    options = _options(chains, bound_s, most_latency_s)
    table = np.full((chains.model.groups + 1, *(count + 1 for count in chains.counts)), math.inf)
    table[0] = 0
    tables = [table]
    slices = [windows(share, chains.counts) for share in chains.shares.tolist()]
    for _ in range(chains.most_stages if chains.layered else 1):
        before = tables[-1]
        now = before.copy() if chains.layered else before
        for end, ways in enumerate(options):
            if should_stop():
                return None
            to = now[end]
            for option in ways:
                come_from = before[option.begin] + option.service_s
                for share in option.shares.tolist():
                    source, beyond = slices[share]
                    target = to[beyond]
                    np.minimum(target, come_from[source], out=target)
        if chains.layered:
            tables.append(now)
    latency_s = float(tables[-1][(-1, *chains.counts)])
    met = latency_s <= most_latency_s * (1 + TOLERANCE)
    return Quickest(tuple(_traced(chains, options, tables)) if met else (), latency_s)


def _traced(chains: Chains, options: list[list[_Option]], tables: list[Floats]) -> list[SharedStage]:
    """Trace the chain back: the sums have the same terms, hence are equal to the last bit."""
    layer, end, free = len(tables) - 1, chains.model.groups, np.array(chains.counts)
    shared_stages: list[SharedStage] = []
    while end:
        if layer and tables[layer][(end, *free)] == tables[layer - 1][(end, *free)]:
            layer -= 1
            continue
        before, latency_s = tables[max(0, layer - 1)], tables[layer][(end, *free)]
        option, share = next(
            (option, share)
            for option in options[end]
            for share in option.shares.tolist()
            if (chains.shares[share] <= free).all()
            and before[(option.begin, *(free - chains.shares[share]))] + option.service_s == latency_s
        )
        shared_stages.append(SharedStage(share, option.begin, end, option.lead))
        end, free, layer = option.begin, free - chains.shares[share], max(0, layer - 1)
    return shared_stages[::-1]


def tight_stages(chains: Chains, most_latency_s: float) -> Ints:
    """(stages, 3): lead, begin and end of all stages that a chain of at most that latency may have."""
    return np.argwhere(_through_s(chains, 0.0, most_latency_s) <= most_latency_s * (1 + TOLERANCE))


def periods_s(chains: Chains, stages: Ints) -> Floats:
    """Periods that `stages`, as returned by `tight_stages`, may have; ascending."""
    of_lead = [stages[stages[:, 0] == lead, 1:].T for lead in range(len(chains.teams))]
    rates = [_rates_with(chains, lead)[:, :, *leads].ravel() for lead, leads in enumerate(of_lead) if leads.size]
    every = np.concatenate(rates) if rates else np.zeros(0)
    return np.unique(inverse(every[every > 0]))


def _options(chains: Chains, bound_s: float, most_latency_s: float) -> list[list[_Option]]:
    """(positions,): options by the end of the stage. With mixed shares, those that are never better are left out."""
    rate = (1 - TOLERANCE) / bound_s if bound_s else math.inf
    able = _through_s(chains, rate, most_latency_s) <= most_latency_s * (1 + TOLERANCE)
    of_stage: dict[tuple[int, int], list[tuple[float, int, Ints]]] = {}
    for lead, begin, end, shares in _least_shares(chains, able, rate):
        of_stage.setdefault((begin, end), []).append((float(chains.seconds.alone_s[lead, begin, end]), lead, shares))
    options: list[list[_Option]] = [[] for _ in range(chains.model.groups + 1)]
    mixed = chains.is_mixed
    for (begin, end), chosen in of_stage.items():
        kept = np.zeros((0, len(chains.counts)), np.int64)
        for service_s, lead, shares in sorted(chosen, key=lambda option: option[:2]):
            if mixed:
                places = chains.shares[shares]
                of_use = ~(kept[:, None] <= places).all(axis=2).any(axis=0)
                shares, kept = shares[of_use], np.concatenate([kept, places[of_use]])
            if shares.size:
                options[end].append(_Option(begin, lead, service_s, shares))
    return options


def _through_s(chains: Chains, rate: float, most_latency_s: float) -> Floats:
    """(teams, positions, positions): the least latency of a chain with this stage, if this is its quickest team.

    inf where the stage does not keep up `rate`, in frames a second, even on all places, or takes too long.
    """
    seconds = chains.seconds.alone_s
    served = np.stack([_most_with(chains, lead) for lead in range(len(chains.teams))])
    able = np.isfinite(seconds) & (served >= rate) & (seconds <= most_latency_s * (1 + TOLERANCE))
    own_s = np.where(able, seconds, np.inf)
    best_s = own_s.min(axis=0)
    return np.asarray(least_to(best_s)[:, None] + own_s + least_left(best_s))


def _most_with(chains: Chains, lead: int) -> Floats:
    """(positions, positions): frames a second of the largest share that has such a team; -1: too few places for it."""
    team = chains.teams[lead]
    if team.size > chains.counts[team.kind]:
        return np.full(chains.seconds.busy_s[lead].shape, -1.0)
    rate, further, others = _rates_apart(chains, lead)
    return np.asarray(rate + further[-1] + others[-1])


def _rates_with(chains: Chains, lead: int) -> Floats:
    """(others, further, positions, positions): frames a second of stages that have such a team, and 0, 1, ... places
    more: `further` of the team's kind, `others` of the other kind, if a stage may have both.
    """
    rate, further, others = _rates_apart(chains, lead)
    return np.asarray(rate + further + others[:, None])


def _rates_apart(chains: Chains, lead: int) -> tuple[Floats, Floats, Floats]:
    """Frames a second of the team (positions, positions), and of places more: of its kind, and of the other one."""
    team, rate = chains.teams[lead], inverse(chains.seconds.busy_s[lead])
    none = np.zeros((1, *rate.shape))
    further = chains.rates[team.kind][: chains.counts[team.kind] - team.size + 1] if chains.replicate else none
    return rate, further, chains.rates[1 - team.kind] if chains.is_mixed else none


def _least_shares(chains: Chains, able: Bools, rate: float) -> Iterator[tuple[int, int, int, Ints]]:
    """Yield lead, begin, end and the minimal shares that have such a team and keep up `rate`."""
    number_of = {tuple(share): number for number, share in enumerate(chains.shares.tolist())}
    for lead, team in enumerate(chains.teams):
        begins, ends = np.nonzero(able[lead])
        if not begins.size:
            continue
        enough = _rates_with(chains, lead)[:, :, begins, ends] >= rate
        further = np.where(enough.any(axis=1), enough.argmax(axis=1), _NONE)
        # More places of the other kind are of use only if they save some of the team's kind.
        best = np.minimum.accumulate(further, axis=0)
        further[1:][further[1:] >= best[:-1]] = _NONE
        for column, begin, end in zip(further.T, begins.tolist(), ends.tolist(), strict=True):
            shares = []
            for others in np.flatnonzero(column < _NONE).tolist():
                share = [0] * len(chains.counts)
                share[team.kind] = team.size + int(column[others])
                if others:
                    share[1 - team.kind] = others
                shares.append(number_of[tuple(share)])
            yield lead, begin, end, np.array(shares)
