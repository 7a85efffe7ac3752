"""The strategies, by the names that users give them."""

from __future__ import annotations

from typing import Final, Literal, get_args

from shisha_rt.planner.scheme_names import SchemeName

RivalName = Literal[
    "annealing",
    "hill_climbing",
    "annealing_seeded",
    "hill_climbing_seeded",
    "random_walk",
    "exhaustive",
    "pipe_search",
]
RIVALS: Final[tuple[RivalName, ...]] = get_args(RivalName)

LiveName = Literal["guided", "shisha"]
LIVE: Final[tuple[LiveName, ...]] = get_args(LiveName)
"""How a live pipeline is tuned: by exact plans for costs that each trial corrects, or by Shisha's walk."""

StrategyName = Literal["seed", "exact", LiveName, RivalName, SchemeName]
WITHOUT_COSTS: Final[tuple[StrategyName, ...]] = ("seed",)
"""They go by weights and ranks alone; all others need the costs of layers."""
LIMITED: Final[tuple[StrategyName, ...]] = ("exact", *RIVALS)
"""They can be stopped by a time limit, of their own or of their trials."""

WITH_COPIES: Final[tuple[StrategyName, ...]] = ("exact", "guided")
"""They know stages with copies, teams of places, and latency; all others plain chains and throughput."""
