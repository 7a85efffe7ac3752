"""Limits and timeouts of the lifecycle, each of which an operator may want to change."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Times are in seconds."""

    max_in_flight: int = 256  # accepted, unanswered frames of a client that is alone; twice as many for all together
    waiting_bytes: int = 96 << 20  # bytes of frames without a slot, of a client that is alone; twice that for all
    sequences_kept: int = 10_000  # idle streams whose last sequence number is remembered
    descriptors_per_worker: int = 2  # one running, one queued, so that a worker never waits for the daemon
    batch: int = 1  # batch size of stages that have none of their own, in plans that no client has proposed
    target_s: float = math.inf  # a frame that is predicted to take longer is refused
    batch_delay_s: float = 0.0  # how long an idle team may wait for more frames of a batch, likely or not
    deaths_per_frame: int = 2  # a frame charged with so many worker deaths is answered with an error
    waiting_plans: int = 8  # proposals of one owner that may wait, so that clients cannot crowd out the daemon's own
    prepare_s: float = 120.0
    start_s: float = 300.0  # long, as many processes may start on few cores; hung ones are noticed earlier
    retire_s: float = 60.0  # for a superseded epoch without a part done (20 times its slowest part, if that is longer)
    away_s: float = 2.0  # a place without a worker for so long (three times its last start, if longer) is away ...
    away_most_s: float = 10.0  # ... and at the latest after this, as a start on a busy host says little
    crashes_per_stage: int = 2  # worker crashes in preparing a stage, after which no plan with it is prepared
    failed_starts: int = 2  # starts of a worker in a row that fail, after which no client's plan waits for it
    starts_at_once: int = 8  # workers that start slow each other down: the rest wait for their turn
    deaths_in_window: int = 5  # more than this many ...
    death_window_s: float = 30.0  # ... in this time take a place out of planning
    restart_delay_s: float = 0.1  # the last place left is restarted after this, doubled each time ...
    restart_delay_max_s: float = 10.0  # ... up to this
    outage_s: float = 30.0  # when no frame can be computed for so long ...
    outage_deaths: int = 3  # ... and so many workers have died since, frames are answered with an error
    replan_s: float = 0.5  # between two requests for a plan that can serve
