"""From a machine file's limits to the gate that every plan passes before it runs, whoever made it."""

from __future__ import annotations

import pytest

from shisha_rt.core.lifecycle.events import Owner, PlanProposed, StagePrepared, Tick, WorkerReady
from shisha_rt.core.lifecycle.instructions import Ending, Instruction, PrepareStage, Settled, Start
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.plan.plan import Plan
from tests.serving.identity_model import LAYERS, write_identity_model

WHOLE_ON_SMALL = Plan.of([(0, LAYERS - 1, "small")])
LAST_ON_SMALL = Plan.of([(0, LAYERS - 2, "large"), (LAYERS - 1, LAYERS - 1, "small")])
COPIES = Plan.chain([(0, LAYERS - 1, ["large", "small"])])


@pytest.fixture(scope="module")
def lifecycle(tmp_path_factory: pytest.TempPathFactory) -> Lifecycle:
    """Both workers are up. The last layer fits into `small`, and not all of them."""
    folder = tmp_path_factory.mktemp("limits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        text = (
            '[[place]]\nname = "small"\ncore_count = 1\nmemory_bytes = 30000\n[[place]]\nname = "large"\ncore_count = 1'
        )
        machine = parse_machine(text, name="two", source="two.toml")
        rules = make_ready(write_identity_model(folder), machine).rules
    lifecycle = Lifecycle(rules, 2, Policy())
    for start in lifecycle.handle(Tick(), 0.0):
        if isinstance(start, Start):
            lifecycle.handle(WorkerReady(start.incarnation), 0.0)
    return lifecycle


def proposed(lifecycle: Lifecycle, plan: Plan, owner: Owner) -> list[Instruction]:
    live = lifecycle.live
    return lifecycle.handle(PlanProposed(owner, 1, plan, None if live is None else live[0]), 0.0)


@pytest.mark.parametrize("owner", Owner)
@pytest.mark.parametrize("plan", [WHOLE_ON_SMALL, COPIES])
def test_a_plan_that_a_place_has_no_room_for_is_refused_whoever_proposes_it(
    lifecycle: Lifecycle, plan: Plan, owner: Owner
) -> None:
    before = lifecycle.live
    (settled,) = proposed(lifecycle, plan, owner)
    assert isinstance(settled, Settled)
    assert settled.ending is Ending.REFUSED
    assert settled.reason.startswith("small would need ")
    assert settled.reason.endswith(" bytes, and has memory_bytes = 30000")
    assert lifecycle.live == before


def test_one_that_it_has_room_for_goes_live(lifecycle: Lifecycle) -> None:
    for order in proposed(lifecycle, LAST_ON_SMALL, Owner.CLIENT):
        if isinstance(order, PrepareStage):
            lifecycle.handle(StagePrepared(order.epoch, order.stage, order.incarnation), 0.0)
    assert lifecycle.live is not None
    assert lifecycle.live[1] == LAST_ON_SMALL
