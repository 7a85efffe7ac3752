"""Algorithm 1 on examples worked by hand, and what holds of every seed."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.machine import Place
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.seed import ASSIGNS, Assign, by_rank, seed
from tests.wording import raised


def places(*ranks: int) -> list[Place]:
    """p0, p1, ... of the given ranks."""
    return [Place(f"p{i}", (i,), 1, 1, 1.0, rank, "ram") for i, rank in enumerate(ranks)]


def spans(plan: Plan) -> list[tuple[int, int]]:
    return [(stage.first, stage.last) for stage in plan.stages]


class TestMerging:
    def test_worked_by_hand(self) -> None:
        # layer     0  1  2  3  4  5      four merges, to two stages
        # weights   4  3  1  2  6  2
        #           4  3 [1  2] 6  2      1 is lightest; its neighbours are 3 and 2: joins 2
        #           4  3  3 [6  2]        2 is lightest and at the end: joins 6
        #           4 [3  3] 8            3 (layer 1) is furthest left; neighbours 4 and 3: joins 3
        #          [4  6] 8               4 is lightest and at the end: joins 6
        weights = [4, 3, 1, 2, 6, 2]
        assert spans(seed(weights, places(1, 1, 1, 1))) == [(0, 0), (1, 1), (2, 3), (4, 5)]
        assert spans(seed(weights, places(1, 1, 1))) == [(0, 0), (1, 3), (4, 5)]
        assert spans(seed(weights, places(1, 1))) == [(0, 3), (4, 5)]

    def test_tie_of_lightest_takes_the_lowest_index(self) -> None:
        assert spans(seed([1, 5, 5, 1], places(1, 1, 1))) == [(0, 1), (2, 2), (3, 3)]

    def test_tie_of_neighbours_takes_the_left(self) -> None:
        assert spans(seed([5, 1, 5], places(1, 1))) == [(0, 1), (2, 2)]

    def test_weights_of_zero(self) -> None:
        assert spans(seed([0, 0, 0], places(1, 1))) == [(0, 1), (2, 2)]

    def test_layers_that_cannot_be_separated_start_as_one(self) -> None:
        # Without the illegal cut 1 the seed would be [0-0, 1-1, 2-2, 3-3]; 4 places have 3 groups to run.
        plan = seed([3, 2, 1, 4], places(1, 1, 1, 1), legal_cuts={0, 2})
        assert spans(plan) == [(0, 0), (1, 2), (3, 3)]

    def test_no_legal_cut_leaves_one_stage(self) -> None:
        assert spans(seed([1, 2, 3], places(1, 1), legal_cuts=())) == [(0, 2)]

    def test_fewer_layers_than_places(self) -> None:
        assert spans(seed([1, 2], places(1, 1, 1))) == [(0, 0), (1, 1)]

    def test_one_stage(self) -> None:
        assert spans(seed([1, 2, 3], places(1, 1), stage_count=1)) == [(0, 2)]

    def test_a_thousand_layers_over_many_places_within_a_second(self) -> None:
        rng = random.Random(1)
        start_s = time.process_time()
        plan = seed([rng.randrange(10**9) for _ in range(1000)], places(*[1 + i % 3 for i in range(256)]))
        assert len(plan.stages) == 256
        assert time.process_time() - start_s < 1


class TestAssignment:
    def test_heaviest_stage_on_the_fastest_place(self) -> None:
        plan = seed([1, 9, 5], places(3, 1, 2))
        assert plan == Plan.of([(0, 0, "p0"), (1, 1, "p1"), (2, 2, "p2")])

    def test_places_of_one_class_as_listed_and_ties_from_the_left(self) -> None:
        assert seed([5, 5, 5], places(2, 1, 1)) == Plan.of([(0, 0, "p1"), (1, 1, "p2"), (2, 2, "p0")])

    def test_most_layers_on_the_slowest_place(self) -> None:
        # Stages of 1, 3 and 2 layers; p1 is the fastest, p0 the slowest.
        weights = [9, 1, 1, 1, 2, 2]
        assert seed(weights, places(3, 1, 2), assign="layers") == Plan.of([(0, 0, "p1"), (1, 3, "p0"), (4, 5, "p2")])

    @pytest.mark.parametrize("assign", ASSIGNS)
    def test_with_fewer_stages_only_the_fastest_places(self, assign: Assign) -> None:
        plan = seed([1, 2, 3], places(3, 1, 3, 2), stage_count=2, assign=assign, rng=random.Random(0))
        assert set(plan.places) == {"p1", "p3"}

    def test_most_layers_on_the_slowest_of_those_in_use(self) -> None:
        assert seed([1, 1, 9], places(3, 1, 2), stage_count=2, assign="layers") == Plan.of([(0, 1, "p2"), (2, 2, "p1")])

    def test_random_repeats_with_its_generator_and_varies_without(self) -> None:
        def drawn(start: int) -> Plan:
            return seed([1, 2, 3, 4], places(1, 1, 1, 1), assign="random", rng=random.Random(start))

        assert drawn(7) == drawn(7)
        assert len({drawn(start) for start in range(50)}) > 10


class TestBadInput:
    @pytest.mark.parametrize(
        ("weights", "ranks", "stage_count", "legal_cuts", "expected"),
        [
            ([], (1,), None, None, "no layers"),
            ([1], (), None, None, "no places"),
            ([1, -2], (1,), None, None, "weight of layer 1"),
            ([1, 2], (1, 1), 0, None, "0 stages: expected at least 1"),
            ([1, 2, 3], (1, 1), 3, None, r"3 stages: .* 2, the number of"),
            ([1, 2], (1, 1, 1), 3, None, r"3 stages: .* 2, the number of"),
            ([1, 2, 3], (1, 1, 1), 3, {0}, r"3 stages: .* 2, as the legal"),
        ],
    )
    def test_refused(
        self,
        weights: list[int],
        ranks: tuple[int, ...],
        stage_count: int | None,
        legal_cuts: set[int] | None,
        expected: str,
    ) -> None:
        with raised(BadInput, Error.WRONG_OPTION, match=expected):
            seed(weights, places(*ranks), stage_count=stage_count, legal_cuts=legal_cuts)

    def test_random_needs_a_generator(self) -> None:
        with raised(BadInput, Error.WRONG_OPTION, match="random generator"):
            seed([1], places(1), assign="random")


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[Place], frozenset[int], int]:
    """Weights, places, legal cuts, and a number of stages that they allow."""
    weights = draw(st.lists(st.integers(0, 50), min_size=1, max_size=30))
    ranks = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    cuts = draw(st.frozensets(st.integers(0, len(weights) - 2))) if len(weights) > 1 else frozenset()
    return weights, places(*ranks), cuts, draw(st.integers(1, min(len(ranks), len(cuts) + 1)))


@given(case=cases(), assign=st.sampled_from(ASSIGNS), start=st.integers(0, 9))
def test_every_seed_may_run(
    case: tuple[list[int], list[Place], frozenset[int], int], assign: Assign, start: int
) -> None:
    weights, here, cuts, stage_count = case
    rng = random.Random(start)
    plan = seed(weights, here, stage_count=stage_count, assign=assign, legal_cuts=cuts, rng=rng)
    names = [place.name for place in here]
    assert PlanRules(len(weights), tuple(names), frozenset(cuts) if cuts is not None else None).problems(plan) == []
    assert len(plan.stages) == stage_count
    assert set(plan.places) == {place.name for place in by_rank(here)[:stage_count]}


@given(case=cases())
def test_a_heavier_stage_is_never_on_a_slower_place(
    case: tuple[list[int], list[Place], frozenset[int], int],
) -> None:
    weights, here, cuts, stage_count = case
    ranks = {place.name: place.rank for place in here}

    def by_size(values: Sequence[tuple[int, int]]) -> list[int]:
        return [rank for _, rank in sorted(values, key=lambda value: (-value[0], value[1]))]

    heavy = seed(weights, here, stage_count=stage_count, legal_cuts=cuts)
    loads = [(sum(weights[s.first : s.last + 1]), ranks[s.place]) for s in heavy.stages]
    assert by_size(loads) == sorted(rank for _, rank in loads)

    long = seed(weights, here, stage_count=stage_count, legal_cuts=cuts, assign="layers")
    lengths = [(-s.layer_count, ranks[s.place]) for s in long.stages]
    assert by_size(lengths) == sorted(rank for _, rank in lengths)
