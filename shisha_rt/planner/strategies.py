"""The names of all strategies, as users give them, apart from their modules: help lists them without an import."""

from __future__ import annotations

from typing import Final, Literal, get_args

RivalName = Literal[
    "annealing",
    "hill_climbing",
    "annealing_seeded",
    "hill_climbing_seeded",
    "random_walk",
    "exhaustive",
    "pipe_search",
    "lls",
    "odin",
]
RIVALS: Final[tuple[RivalName, ...]] = get_args(RivalName)

LiveName = Literal["guided", "shisha"]
LIVE: Final[tuple[LiveName, ...]] = get_args(LiveName)
"""How a live pipeline is tuned: by exact plans for costs that each trial corrects, or by Shisha's walk."""

SchemeName = Literal["baseline", "typeseq", "opseq", "partitiontuner", "forkjoin"]
SCHEMES: Final[tuple[SchemeName, ...]] = get_args(SchemeName)
"""Strategies that schedule partitions of a network over places, for the least latency (see `scheme_plans`)."""

StrategyName = Literal["seed", "exact", LiveName, RivalName, SchemeName]
WITHOUT_COSTS: Final[tuple[StrategyName, ...]] = ("seed",)
"""Strategies that use weights and ranks alone; all others need the costs of layers."""
LIMITED: Final[tuple[StrategyName, ...]] = ("exact", *RIVALS)
"""Strategies that a time limit can stop, be it their own or that of their trials."""

WITH_COPIES: Final[tuple[StrategyName, ...]] = ("exact", "guided")
"""Strategies for stages with copies, teams of places, and latency; all others: plain chains and throughput."""
PARTITIONS: Final = "schedules of partitions"
"""The space that schemes search."""

Balance = Literal["nlfep", "nfep"]
BALANCES: Final[tuple[Balance, ...]] = get_args(Balance)
"""How Shisha's walk chooses who takes a layer (Shisha, 2022, Table 1)."""
DEFAULT_BALANCE: Final[Balance] = "nlfep"
"""That of heuristic H3 (Shisha, 2022, section 6.4)."""
DEFAULT_ALPHA: Final = 10
"""Moves without gain, after which Shisha's walk ends (Shisha, 2022, section 6.1)."""

SplitMethod = Literal["integer", "geometric", "greedy", "balanced", "proportional", "communication", "fused"]
"""How a layer is split among devices (GP)."""
SplitVariable = Literal["C", "N", "H"]
"""The dimension that is split: input channels, filters, rows of the output (GP)."""
SplitObjective = Literal["latency", "energy"]
"""What is minimised (GP)."""
Execution = Literal["sequence", "parallel"]
"""Whether the devices of a layer compute one after the other (GP, Eq. 7) or side by side. Energy is the same."""


def as_scheme(strategy: str) -> SchemeName | None:
    """The scheme of this name; None for a strategy that is no scheme."""
    return next((scheme for scheme in SCHEMES if scheme == strategy), None)
