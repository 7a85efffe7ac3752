"""Random schedules of a network's branches on two real cores, measured against their predictions (see `branches`)."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from benchmarks.report.results import Row
from benchmarks.rigs.forced import Network, Taken, Told, forced
from shisha_rt.papers.partitiontuner.partition_plan import foretold, plan_by_needs, plan_in_sections
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.placement.branches import Items, Level, structure
from shisha_rt.placement.schedule import schedule_of
from shisha_rt.plan.plan import Plan


def random_schedule(costs: ProcessorCosts, rng: random.Random) -> Plan:
    """A random place for each branch of each level and each run between levels; with or without barriers."""
    problem = apart_problem(costs)
    items = structure(problem)
    places = len(costs.places)
    chosen = [0] * len(problem.nodes)

    def draw(its: Items) -> None:
        place = rng.randrange(places)
        for item in its:
            if isinstance(item, Level):
                for branch in item.branches:
                    draw(branch)
                place = rng.randrange(places)
            else:
                chosen[item] = place

    draw(items)
    plan = plan_in_sections(costs, schedule_of(problem, chosen, items))
    return plan_by_needs(costs, plan) if rng.random() < 0.5 else plan


def random_schedules(network: Network, form: str, count: int, seconds: float) -> list[Row]:
    """Random schedules, set in one daemon one after the other."""
    rng = random.Random(network.model)
    found: list[tuple[Told, Taken]] = []
    with forced(form, network) as daemon:
        for _ in range(count):
            plan = random_schedule(network.costs, rng)
            told = Told("random", plan, foretold(network.costs, plan).stage_s)
            found.append((told, daemon.run(plan, seconds)))
    return schedule_rows(network.model, found)


def schedule_rows(model: str, found: Sequence[tuple[Told, Taken]]) -> list[Row]:
    """A row for each schedule, predicted with the mean hand-over of all."""
    handover_s = statistics.fmean(its.handovers_s(told.plan) / told.handovers for told, its in found)
    rows: list[Row] = []
    for number, (told, its) in enumerate(found):
        predicted_s = told.path_s + told.handovers * handover_s
        rows.append(
            {
                "model": model,
                "number": number,
                "stages": len(told.plan.stages),
                "predicted_ms": 1e3 * predicted_s,
                "measured_ms": 1e3 * its.latency_s,
                "error %": 100 * (its.latency_s / predicted_s - 1),
                "handovers_ms": 1e3 * its.handovers_s(told.plan),
                "mean handover_us": 1e6 * handover_s,
                "stages / predicted": math.fsum(its.stage_s) / math.fsum(told.stage_s),
                "written": str(told.plan),
            }
        )
    return rows
