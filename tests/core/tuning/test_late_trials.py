"""What random interleavings rarely meet: a trial that is prepared so slowly that the next search has ended by then."""

from __future__ import annotations

from typing import Final

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.measuring import FRAMES
from shisha_rt.core.tuning.state import Profiles, State
from tests.core.lifecycle.random_plans import plain_plan
from tests.core.tuning.planning_world import World

PARTS: Final = FRAMES + 4  # more than any warm-up


def test_a_trial_of_an_earlier_search_does_not_stay() -> None:
    """R5: the best plan of the last search was live, kept and watched; it is where the search begins again."""
    worlds = (world for world in map(World, range(100)) if len(world.names) > 2 and not world.devices)
    worlds = (world for world in worlds if world.tuning.choice.profiles in (Profiles.UNWANTED, Profiles.KNOWN))
    begun = (world for world in worlds if world.tuning.options and not world.tuning.choice.best(world.names))
    world = next(world for world in begun if _has_gone_live(world))
    tuning, live = world.tuning, world.lifecycle.live
    assert live is not None
    late = next(plan for plan in iter(lambda: plain_plan(world.rng, world.names), None) if plan != live[1])
    world.feed(ev.TunerSaid(tm.Try(tuning.search.number, late, "it may be better")))
    world.feed(ev.SearchAsked("a client has asked for it"))
    world.feed(ev.TunerSaid(tm.Try(tuning.search.number, live[1], "where it starts")))
    for _ in range(PARTS):
        for index, stage in enumerate(live[1].stages):
            world.feed(ev.PartTaken(live[0], index, stage.place, 1e-3))
    world.feed(ev.TunerSaid(tm.Finished(tuning.search.number, live[1], "enough")))
    assert (tuning.state, tuning.watched) == (State.WATCHING, live[1])
    world.workers.healing = True
    while world.lifecycle.live == live:
        world.work()
    assert tuning.state is State.TUNING
    search = [message for message in world.tuner.inbox if isinstance(message, tm.Begin)][-1]
    assert search.start == live[1]


def _has_gone_live(world: World) -> bool:
    world.feed(le.Tick())
    world._go_live()
    return world.lifecycle.live is not None
