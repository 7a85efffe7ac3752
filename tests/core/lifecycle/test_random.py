"""The lifecycle keeps R1 to R3 through 10,000 random interleavings, in virtual time.

A failure prints its seed and the last events. To play one seed alone:

    SHISHA_LIFECYCLE_SEED=1234 pytest tests/core/lifecycle/test_random.py

and to play others than the usual ones, give the first seed: SHISHA_LIFECYCLE_FIRST_SEED=500000. `make test` plays the
first 500, `make test-long` the others.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

import pytest

from shisha_rt.errors import Error
from tests.core.lifecycle.simulated_world import run
from tests.drawn import chunks

SEED_COUNT: Final = 10_000
SHORT: Final = 300
CHUNK: Final = 500
LOADED_COUNT: Final = 410
LOADED_SHORT: Final = 10
LOADED_CHUNK: Final = 100
RARELY: Final = 3
"""Times that a chunk meets what is rare: a superseded epoch is hurried 4 to 30 times."""
FIRST: Final = int(os.environ.get("SHISHA_LIFECYCLE_FIRST_SEED", "0"))
ONE: Final = os.environ.get("SHISHA_LIFECYCLE_SEED")


@pytest.mark.parametrize(
    "seeds", chunks(1, 1, short=1, first=int(ONE)) if ONE else chunks(SEED_COUNT, CHUNK, short=SHORT, first=FIRST)
)
def test_random_interleavings_keep_the_promises(seeds: range) -> None:
    """And they are worth playing: each chunk meets answers, refusals, replays, late replies and every settlement, and
    plans in which parts of a frame are out side by side, wait for each other, and are dealt among copies and teams.
    """
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = run(seed)
        seen.update(request.outcome for request in world.requests.values())
        seen.update(f"plan {outcome}" for outcome in world.settled.elements())
        seen["collected"] += sum(request.collected for request in world.requests.values())
        seen.update(world.parts.seen)
        seen["replayed"] += world.lifecycle.frames.replayed
        seen["late reply"] += world.lifecycle.frames.stale_replies
    for what in (
        "answered",
        "refused",
        "collected",
        "replayed",
        "late reply",
        "plan live",
        "plan dropped",
        "plan refused",
        "side by side",
        "join",
        "copy",
        "team",
        "second",
        "charged",
        "at risk alone",
        "hurried",
        "reads",
        "writes",
        "read by the daemon",
        "PlaceAway",
        "PlaceBack",
        "released",
        "request of several",
        Error.NO_WORKER,
    ):
        assert seen[what] >= RARELY or len(seeds) < CHUNK, f"too few interleavings meet {what!r}: {seen}"
    assert seen["stays where it died"] >= RARELY or len(seeds) < CHUNK, f"too few frames stay where they died: {seen}"


@pytest.mark.parametrize("seeds", chunks(LOADED_COUNT, LOADED_CHUNK, short=LOADED_SHORT, first=FIRST))
def test_what_was_admitted_is_answered_while_load_goes_on(seeds: range) -> None:
    """Also where frames are few at each place and time to show it: a stage that waits for a full batch, for example,
    while full ones of another plan are dealt first.
    """
    worlds = [run(seed, validate=False, under_load=True) for seed in seeds]
    assert sum(world.parts.seen["shared"] for world in worlds)
    assert sum(world.settled["live"] for world in worlds) > len(seeds)


def test_a_seed_plays_the_same_interleaving_again() -> None:
    assert list(run(7).trace) == list(run(7).trace)
