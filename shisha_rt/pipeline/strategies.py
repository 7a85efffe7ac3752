"""The strategies by the names that users give them, and the rivals made ready for the one loop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

from shisha_rt.errors import BadInput
from shisha_rt.pipeline.search.annealing import Annealing
from shisha_rt.pipeline.search.arrangement import Space
from shisha_rt.pipeline.search.exhaustive import Exhaustive, trial_count
from shisha_rt.pipeline.search.hill_climbing import HillClimbing
from shisha_rt.pipeline.search.pipe_search import build_s, pipe_search
from shisha_rt.pipeline.search.random_walk import RandomWalk
from shisha_rt.pipeline.search.search import Limit, Search
from shisha_rt.pipeline.seed import Ranked
from shisha_rt.placement.solver_names import SchemeName
from shisha_rt.plan.plan import Plan

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

RANDOM_WALK_TRIALS: Final = 1000
"""Without a limit, as it never ends by itself."""

MAX_UNLIMITED_TRIALS: Final = 1_000_000
"""Of Exhaustive Search, each kept as about a kilobyte; a larger space needs a limit."""


def rival(
    name: RivalName,
    space: Space,
    *,
    weights: Sequence[float],
    places: Sequence[Ranked],
    seed: Plan,
    rng: random.Random,
    limit: Limit,
) -> Search[Any]:
    """The `Tuner` of that name. `weights` is (layers,), Eq. 1; `seed` (Algorithm 1's) is where the seeded ones start.

    Raises BadInput where Exhaustive Search has too many plans and no limit, or Pipe-Search too many ways to cut.
    """
    match name:
        case "annealing":
            return Search(Annealing(space, rng), limit)
        case "annealing_seeded":
            return Search(Annealing(space, rng, space.arrangement(seed)), limit)
        case "hill_climbing":
            return Search(HillClimbing(space, rng), limit)
        case "hill_climbing_seeded":
            return Search(HillClimbing(space, rng, space.arrangement(seed)), limit)
        case "random_walk":
            return Search(RandomWalk(space, rng), Limit(RANDOM_WALK_TRIALS) if limit == Limit() else limit)
        case "exhaustive":
            if limit == Limit() and trial_count(space) > MAX_UNLIMITED_TRIALS:
                raise BadInput(
                    f"exhaustive: {trial_count(space)} plans, "
                    f"expected at most {MAX_UNLIMITED_TRIALS}, fewer stages, or a time limit"
                )
            return Search(Exhaustive(space), limit)
        case "pipe_search":
            return Search(pipe_search(space, weights, places), limit, setup_s=build_s(space))
