"""Pipe-Search (Soomro et al. 2021, as described by Shisha (2022), section 6): a database of plans, the most even first.

It replaces trials by preparation: all ways to cut the network are generated and sorted before the first trial. Time and
memory of this grow as C(L-1, N-1), and even stages suit only equal places.

Ours, as neither text specifies it: evenness is the standard deviation of the stages' weights (Eq. 1); numbers of stages
take turns, the largest first; the heaviest stage of each plan goes to the fastest place (Rank_w).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.shisha.arrangement import Arrangement, Space
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.planner.seed import Ranked, by_rank

MAX_DATABASE: Final = 1_000_000
"""Plans: about 100 MB, and a second or two to sort."""

Cuts = tuple[int, ...]
"""(stages - 1,): the groups at which stages 1, 2, ... start."""


def cut_count(space: Space) -> int:
    """Number of ways to cut into 1 to N stages, and so of plans in the database."""
    return sum(math.comb(space.group_count - 1, n) for n in range(space.stage_count))


_FIGURE_4_PLANS: Final = sum(math.comb(17, n) for n in range(8))
_FIGURE_4_BUILD_S: Final = 1200.0


def build_s(space: Space) -> float:
    """Virtual seconds to build the database on the paper's machine.

    A fixed time for each plan, such that SynthNet's database (18 layers, up to 8 stages) takes the 1200 s of Figure 4.
    """
    return _FIGURE_4_BUILD_S / _FIGURE_4_PLANS * cut_count(space)


@dataclass(frozen=True, slots=True)
class PipeSearch:
    """The state is the number of the plan being measured; made by `pipe_search`.

    `database`: plans in the order of trials; `weights` (groups,); `fastest`: places (indices), the fastest first.
    """

    space: Space
    weights: tuple[float, ...]
    fastest: tuple[int, ...]
    database: tuple[Cuts, ...]

    def init(self) -> tuple[int, Proposal]:
        return 0, self._proposal(0)

    def step(self, number: int, observation: Measurement) -> tuple[int, Proposal | str]:
        following = number + 1
        if following == len(self.database):
            return number, "the database is at its end"
        return following, self._proposal(following)

    def _proposal(self, number: int) -> Proposal:
        cuts = self.database[number]
        bounds = (0, *cuts, self.space.group_count)
        spans = list(itertools.pairwise(bounds))
        heaviest_first = sorted(range(len(spans)), key=lambda i: -math.fsum(self.weights[slice(*spans[i])]))
        place_of = dict(zip(heaviest_first, self.fastest, strict=False))
        order = tuple(place_of[i] for i in range(len(spans)))
        return Proposal(self.space.plan(Arrangement(bounds, order)), f"plan {number} of the database")


def pipe_search(space: Space, weights: Sequence[float], places: Sequence[Ranked]) -> PipeSearch:
    """Build the database. `weights` (layers,): Eq. 1. Raises BadInput for more than `MAX_DATABASE` plans."""
    size = cut_count(space)
    if size > MAX_DATABASE:
        raise BadInput(
            f"pipe_search: {size} ways to cut {space.group_count} layers into up to {space.stage_count} stages, "
            f"expected at most {MAX_DATABASE}: fewer stages",
            Error.SPACE_TOO_LARGE,
        )
    of_groups = tuple(math.fsum(weights[first:end]) for first, end in itertools.pairwise(space.starts))
    depths = [most_even_first(of_groups, stages) for stages in range(space.stage_count, 0, -1)]
    turns = itertools.zip_longest(*depths)
    database = tuple(cuts for turn in turns for cuts in turn if cuts is not None)
    return PipeSearch(space, of_groups, tuple(space.places.index(place.name) for place in by_rank(places)), database)


def most_even_first(weights: Sequence[float], stage_count: int) -> list[Cuts]:
    """All ways to cut `weights` (groups,) into `stage_count` stages, the most even first; ties: lexicographically."""
    before = list(itertools.accumulate(weights, initial=0.0))

    def unevenness(cuts: Cuts) -> float:
        """Sum of squares: for the same number of stages and the same total it rises with the standard deviation."""
        ends = (0, *cuts, len(weights))
        return sum((before[end] - before[first]) ** 2 for first, end in itertools.pairwise(ends))

    return sorted(itertools.combinations(range(1, len(weights)), stage_count - 1), key=unevenness)
