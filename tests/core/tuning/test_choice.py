"""What plan the daemon chooses by itself, of those that are at hand: by the machine as it is now."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shisha_rt.core.tuning.best import BestPlan, BestPlans, key_of
from shisha_rt.core.tuning.choice import Basis, Choice
from shisha_rt.core.tuning.profiler_messages import ModelProfiled
from shisha_rt.core.tuning.state import Profiles
from shisha_rt.core.tuning.tuner_messages import PlaceNow, StoredCosts
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.model.split import Splittable
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.seed import ASSIGNS, Assign, seed

MACHINE = Machine(
    "m",
    "m.toml",
    (Memory("ram"),),
    (Place("fast", (0,), 1, 1, 0.5, 1, "ram"), Place("slow", (1,), 1, 1, 0.5, 2, "ram")),
)
SLOWED = MACHINE.with_speed("slow", 0.1)
SEED = Plan.of([(0, 3, "fast"), (4, 7, "slow")])
KEPT = Plan.of([(0, 5, "fast"), (6, 7, "slow")])
BY_COSTS = Plan.of([(0, 6, "fast"), (7, 7, "slow")])
BOTH = ("fast", "slow")


def choice(kept: Plan | None = None, by_costs: Plan | None = None, **basis: Any) -> Choice:
    plans = {} if kept is None else {key_of(MACHINE): best(kept)}
    return Choice(
        MACHINE,
        PlanRules(8, BOTH, frozenset(range(7))),
        [1.0] * 8,
        BestPlans(plans),
        Basis(by_costs={} if by_costs is None else {"throughput": by_costs}, **basis),
    )


def best(plan: Plan) -> BestPlan:
    return BestPlan(plan, Measurement((1.0,) * len(plan.stages), 0.01, 32, 1.0), BOTH)


def test_the_best_plan_kept_comes_before_that_by_costs_and_that_before_the_seed() -> None:
    assert choice(KEPT, BY_COSTS).plan(BOTH) == KEPT
    assert choice(None, BY_COSTS).plan(BOTH) == BY_COSTS
    assert choice().plan(BOTH) == SEED


def test_a_best_plan_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, checked = choice(KEPT), []
    problems = PlanRules.problems

    def counted(rules: PlanRules, plan: Plan) -> list[str]:
        checked.append(plan)
        return problems(rules, plan)

    monkeypatch.setattr(PlanRules, "problems", counted)
    for _ in range(3):  # as each look at the load does, several times a second
        assert chosen.best(BOTH) == best(KEPT)
    assert checked == [KEPT]


@pytest.mark.parametrize("assign", ASSIGNS)
def test_the_seed_is_assigned_as_asked(assign: Assign) -> None:
    wanted = seed([1.0] * 8, MACHINE.places, assign=assign, rng=random.Random(0))
    assert choice(assign=assign).plan(BOTH) == wanted
    # Of alike halves the left one goes to the fastest place, or to the slowest.
    assert len({choice(assign=way).plan(BOTH) for way in ASSIGNS}) > 1


@pytest.mark.parametrize("profiles", [Profiles.COMING, Profiles.FAILED])
def test_before_costs_are_known_each_place_has_the_whole_model(profiles: Profiles) -> None:
    copies = Plan.chain([(0, 7, [("fast",), ("slow",)])])
    without = choice()
    without.profiles, without.replicate = profiles, True
    assert without.plan(BOTH) == copies
    assert without.plan(["slow"]) == Plan.of([(0, 7, "slow")])
    without.replicate = False
    assert without.plan(BOTH) == SEED


def test_a_model_for_which_a_place_has_no_room_is_parted_before_costs_are_known() -> None:
    room = PlanRules(8, BOTH, weight_bytes=(1,) * 8, live_bytes=(0,) * 8, memory_bytes={"slow": 4})
    chosen = Choice(MACHINE, room, [1.0] * 8, BestPlans({}), Basis(replicate=True, profiles=Profiles.COMING))
    assert chosen.plan(BOTH) == SEED


def test_where_the_seed_has_no_room_there_may_be_a_plan_by_weights() -> None:
    """By weights alone the halves are even; by bytes the first layer takes a place for itself."""
    room = PlanRules(8, BOTH, weight_bytes=(8, *(1,) * 7), live_bytes=(0,) * 8, memory_bytes=dict.fromkeys(BOTH, 8))
    assert not room.problems(Choice(MACHINE, room, [1.0] * 8, BestPlans({})).plan(BOTH))


def test_a_layer_that_no_place_has_room_for_is_split() -> None:
    split = Splittable(2, 2, "columns", 4096, 16, ("y",))
    room = PlanRules(
        8,
        BOTH,
        weight_bytes=(1, 1, 100, 1, 1, 1, 1, 1),
        live_bytes=(0,) * 8,
        memory_bytes=dict.fromkeys(BOTH, 60),
        splits={((2, 2), "columns"): split},
    )
    chosen = Choice(MACHINE, room, [1.0] * 8, BestPlans({}))
    assert room.problems(chosen.seed(BOTH))
    plan = chosen.plan(BOTH)
    assert plan.splits
    assert room.problems(plan) == []
    assert chosen.plan(BOTH) is plan  # which took long to find
    assert chosen.plan(["fast"]) == chosen.seed(["fast"])  # nothing can be done about it


def test_costs_that_come_late_count_from_then_on() -> None:
    chosen = choice()
    chosen.profiles, chosen.replicate = Profiles.COMING, True
    chosen.hear(ModelProfiled(StoredCosts(b""), (("throughput", BY_COSTS),), 1.0))
    assert (chosen.plan(BOTH), chosen.profiles) == (BY_COSTS, Profiles.KNOWN)


@pytest.mark.parametrize("available", ["fast", "slow"])
def test_a_plan_that_needs_another_place_is_not_chosen(available: str) -> None:
    assert choice(KEPT, BY_COSTS).plan((available,)) == Plan.of([(0, 7, available)])


@pytest.mark.parametrize("kept", [Plan.of([(0, 8, "fast")]), Plan.of([(0, 5, "fast"), (5, 7, "slow")])])
def test_a_kept_plan_that_does_not_pass_the_gate_is_not_chosen(kept: Plan) -> None:
    assert choice(kept).plan(BOTH) == SEED


def test_what_was_found_for_another_speed_is_not_chosen_until_it_is_back() -> None:
    chosen = choice(KEPT, BY_COSTS)
    chosen.machine = SLOWED
    assert (chosen.plan(BOTH), chosen.best(BOTH)) == (SEED, None)
    assert chosen.places_now(BOTH) == (PlaceNow("fast", 1, 1.0), PlaceNow("slow", 2, 5.0))
    assert chosen.places_now(("fast",)) == (PlaceNow("fast", 1, 1.0),)
    best_plan = best(Plan.of([(0, 7, "fast")]))
    assert chosen.keep(best_plan, BOTH, "throughput") == key_of(SLOWED) != key_of(MACHINE)
    assert chosen.plan(BOTH) == best_plan.plan
    chosen.machine = MACHINE
    assert chosen.plan(BOTH) == KEPT


def test_a_best_plan_with_copies_is_not_one_for_plain_chains() -> None:
    copies = best(Plan.chain([(0, 7, (("fast",), ("slow",)))]))
    rules = PlanRules(8, BOTH, frozenset(range(7)))
    chosen = Choice(MACHINE, rules, [1.0] * 8, BestPlans({}), Basis(replicate=True))
    key = chosen.keep(copies, BOTH, "throughput")
    assert chosen.plan(BOTH) == copies.plan
    plain = Choice(MACHINE, rules, [1.0] * 8, BestPlans({key: copies}))
    assert plain.plan(BOTH) == SEED
    chosen.objective = "latency"
    assert chosen.best(BOTH) is None


def test_a_best_plan_of_one_scheme_is_none_of_anothers() -> None:
    chosen = choice(KEPT)
    best_plan = best(Plan.of([(0, 7, "fast")]))
    chosen.scheme = "baseline"
    chosen.keep(best_plan, BOTH, "throughput", "baseline")
    assert chosen.plan(BOTH) == best_plan.plan
    chosen.scheme = "opseq"
    assert chosen.best(BOTH) is None
    chosen.scheme = None
    assert chosen.plan(BOTH) == KEPT


def test_without_costs_nothing_is_put_where_not_every_layer_runs() -> None:
    chosen = choice()
    assert chosen.plan(BOTH) == SEED
    chosen = choice(partial=frozenset({"fast"}))
    assert chosen.plan(BOTH) == Plan.of([(0, 7, "slow")])
    assert chosen.plan(("fast",)) == Plan.of([(0, 7, "fast")])


def test_a_team_with_a_place_that_was_slowed_is_not_chosen() -> None:
    """What is slowed is emulated, and those are teams of one."""
    chosen = choice()
    together = Plan.chain([(0, 7, [["fast", "slow"]])])
    assert chosen.fits(together, BOTH)
    chosen.machine = SLOWED
    assert not chosen.fits(together, BOTH)
    assert chosen.fits(SEED, BOTH)
    chosen.keep(best(together), BOTH, "throughput")
    assert chosen.plan(BOTH) == SEED
