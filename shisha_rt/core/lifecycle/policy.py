"""The numbers that the lifecycle goes by. Each is a choice that an operator may want to make otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits and patience; times in seconds."""

    max_in_flight: int = 256  # accepted and unanswered frames of one client alone; of all together twice as many
    waiting_bytes: int = 96 << 20  # request bytes held for one client alone while no slot is free; for all, twice that
    sequences_kept: int = 10_000  # of idle streams, where each is to go on
    descriptors_per_worker: int = 2  # one running, one next: a worker never waits for the daemon's turn
    batch: int = 1  # frames of a run of the daemon's own plans, unless they say more
    target_s: float = math.inf  # a frame that is expected to take longer is refused
    batch_delay_s: float = 0.0  # how long a run may wait for more frames while its team is idle
    deaths_per_frame: int = 2  # the second death is the frame's own error
    waiting_plans: int = 8  # of one owner: however many clients propose, the daemon has room for its own
    prepare_s: float = 120.0
    start_s: float = 300.0  # many processes that start on few cores take long; one that does nothing is told of
    retire_s: float = 60.0  # for a superseded epoch, since a part of it was done last (or 20 of its parts' times)
    away_s: float = (
        2.0  # for a place to get its worker back, or three times its last start, before a plan without it ...
    )
    away_most_s: float = 10.0  # ... but no longer than this: a start on a busy host says little
    crashes_per_stage: int = 2  # deaths of workers that prepare a stage, before no plan with it is prepared any more
    starts_at_once: int = 8  # workers that start take their cores from each other: the rest wait for their turn
    deaths_in_window: int = 5  # more than this many ...
    death_window_s: float = 30.0  # ... in this time take a place out of planning
    restart_delay_s: float = 0.1  # the last place left is restarted after this, doubled each time ...
    restart_delay_max_s: float = 10.0  # ... up to this
    replan_s: float = 0.5  # between two requests for a plan that can serve
