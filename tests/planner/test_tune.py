"""Algorithm 2 on walks worked by hand, against a second reading of it, and what holds of every walk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shisha_rt.costs.costs import CostPlace, Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.errors import BadInput, Error
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.loop import run
from shisha_rt.planner.seed import seed
from shisha_rt.planner.strategies import BALANCES, Balance
from shisha_rt.planner.tune import HEURISTICS, shisha
from shisha_rt.planner.tuners import SearchTask, tuner_of
from tests.planner.evaluators import ScriptedEvaluator, costs_of
from tests.wording import raised, says

BACK = "the walk is …"


def places(*names: str) -> list[CostPlace]:
    """`f...` is of rank 1, `s...` of rank 2."""
    return [CostPlace(name, 1 if name.startswith("f") else 2, None) for name in names]


class TestWalksByHand:
    def test_a_walk_and_its_cycle(self) -> None:
        # Four layers of 1 s on p0 and 3 s on p1. The seed takes 2 s and 6 s: p1 gives layer 2 to p0, 3 s and 3 s.
        # Now p0 is the slowest (tie: left), and as no other place is fast, p1 takes layer 2 back: the seed again.
        costs = costs_of([[1, 3]] * 4, ranks=(1, 2))
        result = run(shisha(Plan.of([(0, 1, "p0"), (2, 3, "p1")]), costs.places), CostsEvaluator(costs))
        assert [(str(trial.plan), trial.reason, trial.is_best) for trial in result.trials] == [
            ("p0: 0-1 | p1: 2-3", says("where the walk …"), True),
            ("p0: 0-2 | p1: 3-3", "layer 2 from stage 1 (p1) to stage 0 (p0)", True),
        ]
        assert result.solution == Plan.of([(0, 2, "p0"), (3, 3, "p1")])
        assert result.reason == says(f"best of 2 plans; {BACK}")

    def test_it_walks_on_from_a_worse_plan_and_keeps_the_best(self) -> None:
        script = {
            "f: 0-1 | s: 2-5": (1, 9),
            "f: 0-2 | s: 3-5": (1, 8),
            "f: 0-3 | s: 4-5": (1, 9),  # worse, and still the next move is made from here
            "f: 0-4 | s: 5-5": (1, 7),  # best
            "f: 0-5": (8,),  # s is empty, and may be given a layer again: back at the best
        }
        evaluator = ScriptedEvaluator(script)
        result = run(shisha(Plan.of([(0, 1, "f"), (2, 5, "s")]), places("f", "s"), alpha=2), evaluator)
        assert evaluator.asked == list(script)
        assert [trial.is_best for trial in result.trials] == [True, True, False, True, False]
        assert str(result.solution) == "f: 0-4 | s: 5-5"
        assert result.reason == says(f"best of 5 plans; {BACK}")

    @pytest.mark.parametrize(("alpha", "trials", "kept"), [(1, 3, 1), (2, 4, 1), (3, 8, 4)])
    def test_gamma_counts_moves_without_gain_and_starts_again_with_each(
        self, alpha: int, trials: int, kept: int
    ) -> None:
        plans = [Plan.of([(0, n, "f"), (n + 1, 9, "s")]) for n in range(8)]
        slow_s = (9, 8, 8, 8, 7, 7, 7, 7)  # equal is no gain (line 9)
        script = {str(plan): (1, time_s) for plan, time_s in zip(plans, slow_s, strict=True)}
        task = SearchTask(plans[0], places("f", "s"), alpha=alpha)
        result = run(tuner_of("shisha", task), ScriptedEvaluator(script))
        assert (len(result.trials), result.solution) == (trials, plans[kept])
        assert result.reason == f"best of {trials} plans; no gain in {alpha} moves"

    def test_a_gain_within_the_band_is_none(self) -> None:
        script = {"f: 0-0 | s: 1-2": (1, 10.0), "f: 0-1 | s: 2-2": (1, 9.9), "f: 0-2": (9.0,)}
        start = Plan.of([(0, 0, "f"), (1, 2, "s")])
        result = run(shisha(start, places("f", "s"), alpha=1), ScriptedEvaluator(script, band=0.02))
        assert (len(result.trials), result.solution) == (2, start)

    def test_a_stage_that_cannot_run_is_the_slowest(self) -> None:
        # p1 cannot run layers 1 and 2, so they leave it one by one; the first move does not help yet.
        costs = costs_of([[1, 1], [1, None], [1, None], [1, 1]], ranks=(1, 2))
        result = run(shisha(Plan.of([(0, 0, "p0"), (1, 3, "p1")]), costs.places), CostsEvaluator(costs))
        assert [trial.measurement.can_run for trial in result.trials] == [False, False, True]
        assert (str(result.solution), result.outcome) == ("p0: 0-2 | p1: 3-3", "feasible")
        assert [trial.measurement.took_s for trial in result.trials] == [0, 0, 3]

    def test_no_plan_that_can_run(self) -> None:
        costs = costs_of([[None, None]] * 3, ranks=(1, 2))
        start = Plan.of([(0, 1, "p0"), (2, 2, "p1")])
        result = run(shisha(start, costs.places), CostsEvaluator(costs))
        assert (result.solution, result.outcome) == (start, "infeasible")

    def test_one_stage_has_nowhere_to_move_to(self) -> None:
        result = run(shisha(Plan.of([(0, 3, "f")]), places("f", "s")), ScriptedEvaluator({"f: 0-3": (1,)}))
        assert result.reason == says("best of 1 plans; there is no …")


def moved(
    start: Plan,
    service_s: tuple[float, ...],
    balance: Balance = "nlfep",
    legal_cuts: set[int] | None = None,
    order: tuple[str, ...] | None = None,
) -> tuple[str, str]:
    """The plan after one move, and the reason given for it."""
    named = places(*(order or start.places))
    task = SearchTask(start, named, balance=balance, legal_cuts=legal_cuts, order=order)
    tuner = tuner_of("shisha", task)
    walk, first = tuner.init()
    assert first == Proposal(start, "where the walk starts")
    _, proposal = tuner.step(walk, Measurement(service_s, band=0.0, frames=1, took_s=1.0))
    assert not proposal.final
    return str(proposal.plan), proposal.reason


class TestOneMove:
    FOUR = Plan.of([(0, 2, "s0"), (3, 4, "f0"), (5, 5, "f1"), (6, 7, "s1")])
    THREE = Plan.of([(0, 1, "f0"), (2, 3, "s0"), (4, 5, "f1")])

    def test_to_the_nearest(self) -> None:
        assert moved(self.FOUR, (9, 5, 1, 2), "nfep") == (
            "s0: 0-1 | f0: 2-4 | f1: 5-5 | s1: 6-7",
            "layer 2 from stage 0 (s0) to stage 1 (f0)",
        )

    def test_to_the_lightest_with_those_in_between_passing_one_on(self) -> None:
        assert moved(self.FOUR, (9, 5, 1, 2), "nlfep") == (
            "s0: 0-1 | f0: 2-3 | f1: 4-5 | s1: 6-7",
            "layer 2 from stage 0 (s0) towards stage 2 (f1)",
        )

    def test_to_the_left(self) -> None:
        assert moved(self.FOUR, (1, 3, 5, 9), "nlfep") == (
            "s0: 0-2 | f0: 3-5 | f1: 6-6 | s1: 7-7",
            "layer 6 from stage 3 (s1) towards stage 1 (f0)",
        )

    @pytest.mark.parametrize(
        ("start", "service_s", "balance", "target"),
        [
            (FOUR, (9, 5, 5, 2), "nlfep", "f0"),  # equal times: the nearer
            (THREE, (3, 9, 3), "nlfep", "f0"),  # and as near: left
            (THREE, (3, 9, 2), "nfep", "f1"),  # equal distances: the lighter
            (THREE, (3, 9, 3), "nfep", "f0"),  # and as light: left
            (THREE, (9, 1, 5), "nfep", "f1"),  # from a fast place to another, though a slow one is nearer
        ],
    )
    def test_ties_and_classes(self, start: Plan, service_s: tuple[float, ...], balance: Balance, target: str) -> None:
        assert moved(start, service_s, balance)[1].endswith(f"({target})")

    @pytest.mark.parametrize(("balance", "target"), [("nlfep", "s1"), ("nfep", "s0")])
    def test_without_another_fast_place_any_other_may_take_it(self, balance: Balance, target: str) -> None:
        start = Plan.of([(0, 1, "f0"), (2, 2, "s0"), (3, 3, "s1")])
        assert moved(start, (9, 5, 1), balance)[1].endswith(f"({target})")

    def test_the_fastest_class_is_fast_whatever_its_rank(self) -> None:
        start = Plan.of([(0, 1, "a"), (2, 3, "b"), (4, 5, "c")])
        ranked = [CostPlace("a", 7, None), CostPlace("b", 7, None), CostPlace("c", 5, None)]
        walk, _ = (tuner := shisha(start, ranked)).init()
        assert tuner.step(walk, Measurement((9, 1, 5), 0.0, 1, 1.0))[1].reason.endswith("stage 2 (c)")

    def test_a_stage_may_give_its_last_layer(self) -> None:
        start = Plan.of([(0, 1, "f0"), (2, 2, "s0"), (3, 3, "f1")])
        assert moved(start, (1, 9, 2))[0] == "f0: 0-2 | f1: 3-3"

    def test_an_empty_stage_keeps_its_position_and_may_be_the_target(self) -> None:
        start = Plan.of([(0, 1, "f0"), (2, 3, "f2")])
        assert moved(start, (1, 9), order=("f0", "f1", "f2"))[0] == "f0: 0-1 | f1: 2-2 | f2: 3-3"
        assert moved(start, (9, 1), order=("f0", "f2", "f1")) == (
            "f0: 0-0 | f2: 1-2 | f1: 3-3",
            "layer 1 from stage 0 (f0) towards stage 2 (f1)",
        )

    def test_an_empty_stage_in_between_stays_empty(self) -> None:
        start = Plan.of([(0, 1, "f0"), (2, 3, "s1")])
        assert moved(start, (1, 9), order=("f0", "s0", "s1"))[0] == "f0: 0-2 | s1: 3-3"

    def test_layers_that_cannot_be_separated_move_together(self) -> None:
        start = Plan.of([(0, 1, "f"), (2, 5, "s")])
        assert moved(start, (1, 9), legal_cuts={0, 1, 3}) == (
            "f: 0-3 | s: 4-5",
            "layers 2-3 from stage 1 (s) to stage 0 (f)",
        )

    def test_every_boundary_in_between_moves_to_its_own_next_legal_cut(self) -> None:
        start = Plan.of([(0, 1, "f"), (2, 4, "s0"), (5, 9, "s1")])
        assert moved(start, (1, 2, 9), legal_cuts={1, 3, 4, 7})[0] == "f: 0-3 | s0: 4-7 | s1: 8-9"


class TestBadInput:
    @pytest.mark.parametrize("alpha", [0, -3])
    def test_alpha(self, alpha: int) -> None:
        with raised(BadInput, Error.WRONG_OPTION, match=f"alpha = {alpha}: expected at least 1"):
            shisha(Plan.of([(0, 1, "f")]), places("f"), alpha=alpha)

    def test_a_measurement_of_another_plan(self) -> None:
        walk, _ = (tuner := shisha(Plan.of([(0, 1, "f"), (2, 3, "s")]), places("f", "s"))).init()
        with pytest.raises(ValueError, match="zip"):
            tuner.step(walk, Measurement((1, 2, 3), 0.0, 1, 1.0))


def test_the_heuristics_of_table_1() -> None:
    assert [tuple(HEURISTICS[f"H{i}"]) for i in range(1, 7)] == [
        (assign, balance) for assign in ("layers", "weight", "random") for balance in BALANCES
    ]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Costs, Plan]:
    """Costs in whole seconds, some layers impossible somewhere, some cuts illegal; and a seed for them."""
    layer_count, place_count = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    time_s = st.one_of(st.integers(0, 9), st.integers(1, 9), st.none())
    row = st.lists(time_s, min_size=place_count, max_size=place_count)
    illegal_cuts = draw(st.lists(st.integers(0, layer_count - 2), max_size=3)) if layer_count > 1 else []
    costs = costs_of(
        draw(st.lists(row, min_size=layer_count, max_size=layer_count)),
        draw(st.lists(st.integers(1, 3), min_size=place_count, max_size=place_count)),
        illegal_cuts,
    )
    weights = draw(st.lists(st.integers(0, 9), min_size=layer_count, max_size=layer_count))
    return costs, seed(weights, costs.places, legal_cuts=costs.legal_cuts)


alphas = st.sampled_from([1, 2, 3, 10, 100])
balances = st.sampled_from(BALANCES)


@settings(deadline=None)
@given(case=cases(), alpha=alphas, balance=balances)
def test_what_holds_of_every_walk(case: tuple[Costs, Plan], alpha: int, balance: Balance) -> None:
    costs, start = case
    tuner = shisha(start, costs.places, alpha=alpha, balance=balance, legal_cuts=costs.legal_cuts)
    result = run(tuner, CostsEvaluator(costs))
    plans = [trial.plan for trial in result.trials]
    names = {place.name for place in costs.places}
    for plan in plans:
        assert PlanRules(len(costs.layers), tuple(names), frozenset(costs.legal_cuts)).problems(plan) == []
        assert [name for name in start.places if name in plan.places] == list(plan.places)
    assert len(set(plans)) == len(plans)
    assert result.measurement.bottleneck_s == min(trial.measurement.bottleneck_s for trial in result.trials)
    assert result.solution == plans[result.trials_to_best - 1]
    gains = [trial.number for trial in result.trials if trial.is_best]
    gaps = [after - before - 1 for before, after in zip(gains, [*gains[1:], len(plans)], strict=True)]
    assert max(gaps[:-1], default=0) < alpha
    assert gaps[-1] <= alpha
    assert len(plans) <= 1 + alpha * len(gains)


def by_the_book(costs: Costs, start: Plan, alpha: int, balance: Balance) -> tuple[list[Plan], Plan]:
    """Algorithm 2 line by line, on lists of layers, with every repetition counted; what was run, and the best."""
    names = list(start.places)
    conf = [list(range(stage.first, stage.last + 1)) for stage in start.stages]
    ranks = {place.name: place.rank for place in costs.places}
    fep = [name for name in names if ranks[name] == min(ranks.values())]
    evaluator = CostsEvaluator(costs)
    runs: dict[Plan, Measurement] = {}

    def plan() -> Plan:
        return Plan.of((layers[0], layers[-1], name) for name, layers in zip(names, conf, strict=True) if layers)

    def execute() -> list[float]:
        if plan() not in runs:
            runs[plan()] = evaluator.measurement_of(plan())
        times = iter(runs[plan()].service_s)
        return [next(times) if layers else 0.0 for layers in conf]

    def hand_on(giver: int, taker: int) -> None:
        """The smallest group of layers that may leave by the end that faces the taker."""
        rightwards = taker > giver
        group = [conf[giver].pop(-1 if rightwards else 0)]
        while conf[giver] and (conf[giver][-1] if rightwards else group[-1]) not in costs.legal_cuts:
            if rightwards:
                group.insert(0, conf[giver].pop(-1))
            else:
                group.append(conf[giver].pop(0))
        conf[taker] = group + conf[taker] if rightwards else conf[taker] + group

    times = execute()
    best, throughput = plan(), max(times)
    gamma = 0
    while gamma < alpha:
        slowest = next(i for i, time in enumerate(times) if time == max(times) and conf[i])
        targets = [i for i in range(len(names)) if i != slowest and names[i] in fep]
        targets = targets or [i for i in range(len(names)) if i != slowest]
        if not targets:
            break
        targets.sort(key=lambda i: (abs(i - slowest), times[i]) if balance == "nfep" else (times[i], abs(i - slowest)))
        step = 1 if targets[0] > slowest else -1
        for giver in range(slowest, targets[0], step):
            hand_on(giver, giver + step)
        times = execute()
        if max(times) >= throughput:
            gamma += 1
        else:
            gamma, throughput, best = 0, max(times), plan()
    return list(runs), best


@settings(deadline=None)
@given(case=cases(), alpha=alphas, balance=balances)
def test_it_is_algorithm_2_by_the_book(case: tuple[Costs, Plan], alpha: int, balance: Balance) -> None:
    costs, start = case
    tuner = shisha(start, costs.places, alpha=alpha, balance=balance, legal_cuts=costs.legal_cuts)
    result = run(tuner, CostsEvaluator(costs))
    assert ([trial.plan for trial in result.trials], result.solution) == by_the_book(costs, start, alpha, balance)


def test_a_walk_needs_a_place_for_each_stage() -> None:
    copies = Plan.chain([(0, 1, [("a",), ("b",)])])
    with pytest.raises(ValueError, match="a, b: 0-1:"):
        shisha(copies, [])
