"""The lifecycle keeps R1 to R3 through 10,000 random interleavings, in virtual time.

A failure prints its seed and the last events. To play one seed alone:

    SHISHA_LIFECYCLE_SEED=1234 pytest tests/daemon/test_lifecycle_random.py

and to play others than the usual ones, give the first seed: SHISHA_LIFECYCLE_FIRST_SEED=500000.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

import pytest

from tests.daemon.simulated_world import run

CHUNKS: Final = 20
SEEDS_IN_CHUNK: Final = 500
ONE_SEED: Final = os.environ.get("SHISHA_LIFECYCLE_SEED")
FIRST_SEED: Final = int(os.environ.get("SHISHA_LIFECYCLE_FIRST_SEED", "0"))


@pytest.mark.skipif(ONE_SEED is None, reason="no single seed is asked for")
def test_one_interleaving_keeps_the_promises() -> None:
    run(int(ONE_SEED or 0))


@pytest.mark.skipif(ONE_SEED is not None, reason="a single seed is asked for")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_interleavings_keep_the_promises(chunk: int) -> None:
    """And they are worth playing: each chunk meets answers, refusals, replays, late replies and every settlement."""
    seen: Counter[str] = Counter()
    first = FIRST_SEED + chunk * SEEDS_IN_CHUNK
    for seed in range(first, first + SEEDS_IN_CHUNK):
        world = run(seed)
        seen.update(request.outcome for request in world.requests.values())
        seen.update(world.settled)
        seen["collected"] += sum(request.collected for request in world.requests.values())
        seen["replayed"] += world.lifecycle.replayed
        seen["stale"] += world.lifecycle.stale_replies
    for what in ("answered", "refused", "collected", "replayed", "stale", "live", "dropped"):
        assert seen[what] >= SEEDS_IN_CHUNK // 20, f"too few interleavings meet {what!r}: {seen}"


def test_a_seed_plays_the_same_interleaving_again() -> None:
    assert list(run(7).trace) == list(run(7).trace)
