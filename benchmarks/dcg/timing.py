"""Times of the algorithms on this host: medians of CPU seconds, as they use one thread and the host may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution

Solver = Callable[[Problem], PlacementSolution]


def median_s(repeats: int, call: Callable[[], object]) -> float:
    times_s = []
    for _ in range(repeats):
        began_s = time.process_time()
        call()
        times_s.append(time.process_time() - began_s)
    return median(times_s)


def solve_time_s(repeats: int, solver: Solver, problem: Problem) -> float:
    return median_s(repeats, lambda: solver(replace(problem)))  # a copy: its cached properties are part of the work
