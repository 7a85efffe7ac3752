"""Schedules on random graphs of up to 12 nodes, against all assignments in all orders."""

from __future__ import annotations

import math
from statistics import median

import numpy as np

from benchmarks.report.results import Row
from shisha_rt.papers.partitiontuner.forkjoin import fork_join_blocks, forkjoin
from tests.papers.partitiontuner.every_order import least_of_any_order_s, small_problem


def order_rows(count: int) -> list[Row]:
    """Schedules over the least makespan of any assignment in any order."""
    ways: dict[str, list[float]] = {"blocks with barriers": [], "forkjoin": []}
    for seed in range(count):
        problem = small_problem(seed)
        least_s = least_of_any_order_s(problem)
        for way, result in zip(ways, (fork_join_blocks(problem), forkjoin(problem)), strict=True):
            assert result.schedule is not None
            makespan_s = result.schedule.makespan_s
            ways[way].append(makespan_s / least_s if least_s else 1.0 if makespan_s == 0 else math.inf)
    return [
        {
            "schedules": way,
            "graphs": len(over),
            "above the least": sum(ratio > 1 + 1e-9 for ratio in over),
            "over it, median": median(over),
            "95% within": float(np.quantile(over, 0.95, method="higher")),
            "worst": max(over),
        }
        for way, over in ways.items()
    ]
