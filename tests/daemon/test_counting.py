"""The metrics page does not grow with the number of plans that were tried."""

from __future__ import annotations

from shisha_rt.daemon.counting import MOST_SERIES, Counting
from shisha_rt.plan.plan import Plan

PLACES = [f"p{i}" for i in range(64)]


def chain(shift: int) -> Plan:
    """Of 64 stages, with the places turned round by so many."""
    return Plan.of((i, i, PLACES[(i + shift) % 64]) for i in range(64))


def run_once(counting: Counting, plan: Plan) -> None:
    for i, stage in enumerate(plan.stages):
        for lead in stage.leads:
            counting.service(i, lead).observe(0.01)


def counted(counting: Counting) -> dict[tuple[str, str], float]:
    """Parts by stage and place, as the page has them."""
    (family,) = (kind for kind in counting.registry.collect() if kind.name == "shisha_stage_service_seconds")
    return {
        (sample.labels["stage"], sample.labels["place"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_count")
    }


def test_stages_of_many_plans_that_were_tried() -> None:
    counting, live = Counting(), chain(0)
    run_once(counting, live)
    for shift in range(1, 20):
        tried = chain(shift)
        run_once(counting, tried)
        counting.plan_ended([live])
    by_stage = counted(counting)
    assert len(by_stage) == 64 + MOST_SERIES
    for i, stage in enumerate(live.stages):
        assert by_stage[str(i), stage.place] == 1
    run_once(counting, chain(1))  # gone meanwhile: it begins anew
    assert counted(counting)["0", "p1"] == 1
    assert counted(counting)["0", "p0"] == 1


def test_few_stay_when_their_plan_ends() -> None:
    counting = Counting()
    for shift in range(2):
        run_once(counting, chain(shift))
        counting.plan_ended([])
    run_once(counting, chain(0))
    assert set(counted(counting).values()) == {1, 2}
    assert len(counted(counting)) == 128
