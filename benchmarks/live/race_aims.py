"""The aims of the race, compared with its results. Pure: figures in, rows out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from benchmarks.report.results import Row, Spread, written

SHARED: Final = "daemon_shared"
IPC: Final = "daemon_ipc"
HTTP: Final = ("daemon_http", "daemon_http_shared")
OVER_MOSEC: Final = 1.0
LESS: Final[Mapping[str, float]] = MappingProxyType({SHARED: 0.0, IPC: 0.03})
"""By how much a way of asking the daemon may fall short of the aims; ways that are not listed have no aim."""
BY_LENGTH: Final = ((10.0, 0.97), (3.0, 0.92), (0.0, 0.80))
"""(milliseconds per frame by the best plain engine, aim): the aim of a network that takes longer than this."""
LONG_MS: Final = BY_LENGTH[0][0]
MEAN: Final = 0.97
OVER_SERVERS: Final[Mapping[bool, float]] = MappingProxyType({False: 1.2, True: 1.05})
"""Aims over other servers, by whether a frame takes more than `LONG_MS`."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A network's figures: the time per frame of the best plain engine, and ratios of the daemon's rate to it, to the
    best server and to Mosec, by way of asking; None without such a rival.
    """

    model: str
    engine_ms: float | None
    over_engine: Mapping[str, Spread | None]
    over_server: Mapping[str, Spread | None]
    over_mosec: Mapping[str, Spread | None] = field(default_factory=dict)

    @property
    def is_long(self) -> bool:
        return self.engine_ms is not None and self.engine_ms > LONG_MS


def aim_over_engine(standing: Standing) -> float | None:
    if standing.engine_ms is None:
        return None
    return next(aim for over_ms, aim in BY_LENGTH if standing.engine_ms > over_ms)


def geometric_mean(ratios: Sequence[float]) -> float:
    return statistics.geometric_mean(ratios)


def aims(standings: Sequence[Standing]) -> list[Row]:
    """Each aim with its result; an aim without a figure is marked as such."""
    rows: list[Row] = []
    for way, less in LESS.items():
        if not any(way in its.over_engine for its in standings):
            rows.append(_row(f"{way} / best plain engine", "all", MEAN - less, None))
            continue
        for its in standings:
            wanted = aim_over_engine(its)
            if wanted is not None:
                rows.append(_row(f"{way} / best plain engine", its.model, wanted - less, its.over_engine.get(way)))
        rows.append(
            _row(f"{way} / best plain engine", "geometric mean", MEAN - less, _mean(standings, "over_engine", way))
        )
    rows += [
        _row(f"{SHARED} / best server", its.model, OVER_SERVERS[its.is_long], its.over_server.get(SHARED))
        for its in standings
    ]
    rows += [
        _row(f"{way} / mosec", its.model, OVER_MOSEC, its.over_mosec[way])
        for its in standings
        for way in HTTP
        if way in its.over_mosec
    ]
    return rows


def mean_rows(standings: Sequence[Standing], ways: Sequence[str]) -> list[Row]:
    """Geometric means over all networks, by way of asking."""
    return [
        {
            "side": way,
            "rate over the best plain engine": _mean(standings, "over_engine", way),
            "rate over the best server": _mean(standings, "over_server", way),
            "networks": len(standings),
        }
        for way in ways
    ]


def _mean(standings: Sequence[Standing], which: str, way: str) -> float | None:
    found: list[Spread | None] = [getattr(its, which).get(way) for its in standings]
    ratios = [one.median for one in found if one is not None]
    return geometric_mean(ratios) if ratios else None


def _row(what: str, model: str, wanted: float, found: Spread | float | None) -> Row:
    median = found.median if isinstance(found, Spread) else found
    return {
        "aim": what,
        "network": model,
        "at least": wanted,
        "found": None if found is None else str(found) if isinstance(found, Spread) else written(found),
        "met": "not measured" if median is None else "yes" if median >= wanted else "no",
    }
