"""The rivals' searches by name, as tuners for the search loop (`planner/loop.py`) and over costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from shisha_rt.costs.alike import kinds_of
from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.shisha.annealing import Annealing
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.papers.shisha.exhaustive import Exhaustive, trial_count
from shisha_rt.papers.shisha.hill_climbing import HillClimbing
from shisha_rt.papers.shisha.pipe_search import build_s, pipe_search
from shisha_rt.papers.shisha.random_walk import RandomWalk
from shisha_rt.papers.shisha.rebalancing import LeastLoaded, Odin
from shisha_rt.papers.shisha.search import Limit, Search
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.seed import Ranked
from shisha_rt.planner.strategies import RivalName
from shisha_rt.planner.tuners import SearchTask

RANDOM_WALK_TRIALS: Final = 1000
"""Limit of Random Walk if none is given, as it would not end."""

MAX_UNLIMITED_TRIALS: Final = 1_000_000
"""Most trials of Exhaustive Search without a limit; each takes about a kilobyte."""


def rival(
    name: RivalName,
    space: Space,
    *,
    weights: Sequence[float],
    places: Sequence[Ranked],
    seed: Plan,
    rng: random.Random,
    limit: Limit,
    order: Sequence[str] | None = None,
) -> Search[Any]:
    """The `Tuner` of a name. `weights` (layers,): Eq. 1. `seed`: the start of seeded searches; for `lls` and `odin` the
    live plan, with the places of `order`, for others that of Algorithm 1.

    Raises BadInput if Exhaustive Search has too many plans and no limit, or Pipe-Search too many ways to cut.
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
                    f"expected at most {MAX_UNLIMITED_TRIALS}, fewer stages, or a time limit",
                    Error.SPACE_TOO_LARGE,
                )
            return Search(Exhaustive(space), limit)
        case "pipe_search":
            return Search(pipe_search(space, weights, places), limit, setup_s=build_s(space))
        case "lls" | "odin":
            walk = LeastLoaded if name == "lls" else Odin
            cuts = [start - 1 for start in space.starts[1:-1]]
            return Search(walk.of(seed, places, legal_cuts=cuts, order=order), limit)


def rival_tuner(name: RivalName, task: SearchTask) -> Search[Any]:
    """A rival's search over the costs of layers, in plans of at most as many stages as the start."""
    costs = task.known_costs
    weights = [layer.weight for layer in costs.layers]
    space = space_of(
        len(weights),
        [place.name for place in costs.places],
        stage_count=len(task.start.stages),
        legal_cuts=costs.legal_cuts,
        kinds=kinds_of(costs),
    )
    limit = Limit(trial_time_s=task.trial_time_s)
    tuner = rival(
        name,
        space,
        weights=weights,
        places=costs.places,
        seed=task.start,
        rng=task.rng,
        limit=limit,
        order=task.order,
    )
    # The virtual time to build a database on the paper's machine does not count for users.
    return replace(tuner, setup_s=0.0)
