"""The rivals' searches by name, made ready for the one loop, and run over costs."""

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
    order: Sequence[str] | None = None,
) -> Search[Any]:
    """The `Tuner` of that name. `weights` is (layers,), Eq. 1; `seed` is where those start that are told to: `lls` and
    `odin` from the plan that is live, with the places of `order`, the others from Algorithm 1's.

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
    # What a database took to build on the paper's machine is no time of the user's.
    return replace(tuner, setup_s=0.0)
