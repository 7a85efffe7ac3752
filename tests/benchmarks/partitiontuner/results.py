"""Results made up to be counted by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.partitiontuner.board import Cell
from benchmarks.partitiontuner.cases import GIVEN, Case, Measured, Planned
from shisha_rt.papers.partitiontuner.partition_plan import Foretold
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.strategies import SchemeName


def result(
    network: str,
    scheme: SchemeName,
    predicted_ms: float,
    executed_ms: float | None = None,
    *,
    form: str = GIVEN,
    partitions: int = 1,
    on_npu: tuple[int, int] = (0, 0),
) -> Planned:
    """One whose plan is told by its number of partitions; `on_npu`: Convs and Relus."""
    plan = Plan.chain([(index, index, [["cpu"]]) for index in range(partitions)])
    stage_s = (1e-3 * predicted_ms / partitions,) * partitions
    foretold = Foretold(stage_s, 1e-3 * predicted_ms, 0.0)
    scheme_plan = SchemePlan(scheme, plan, (0,) * partitions, foretold, 1e-3 * predicted_ms / 2, 0, 0)
    measured = None if executed_ms is None else Measured(*[(1e-3 * executed_ms,)] * 3)
    cell = Cell(predicted_ms, plan, *on_npu, partitions, 0, 0)
    return Planned(Case(network, form, Path()), scheme_plan, cell, 26, 0.0, measured=measured)
