"""`shisha-rt plan` with a strategy that schedules partitions. Shell."""

from __future__ import annotations

import time

from shisha_rt.cli.options import progress
from shisha_rt.cli.plan import PlanOptions, model_on_machine
from shisha_rt.errors import Error, Failure
from shisha_rt.outcome import Outcome
from shisha_rt.papers.partitiontuner.scheme_answer import SchemeAnswer
from shisha_rt.planner.strategies import PARTITIONS, as_scheme
from shisha_rt.show.plan_answer import PlanAim, PlanAnswer, PlanProblem


def schedule_partitions(asked: PlanOptions) -> SchemeAnswer:
    """Schedule partitions; if places have devices, each operator is a layer, so that cuts between any two are possible.

    `asked.program`: the file for a program of the schedule, if one is to be written.
    """
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.papers.partitiontuner.measured_processors import processor_costs
    from shisha_rt.papers.partitiontuner.program import check_program_file, check_program_machine, write_program
    from shisha_rt.papers.partitiontuner.scheme_plans import scheme_plan

    program, scheme = asked.program, as_scheme(asked.strategy)
    assert scheme is not None  # the caller has checked it
    if program is not None:
        check_program_file(program)
        if asked.machine is not None:
            check_program_machine(load_machine(asked.machine))
    ready = model_on_machine(asked, None)
    profiled = processor_costs(ready, progress, tuple(asked.group or ()))
    start_s = time.monotonic()
    scheduled = scheme_plan(scheme, profiled.costs)
    if scheduled is None:
        what = "every layer" if scheme == "baseline" else "some layer"
        raise Failure(f"infeasible: no place of {ready.machine.source} can run {what} by itself", Error.NO_PLAN)
    planning_s = time.monotonic() - start_s
    weights = [layer.weight for layer in ready.compiled.layers]
    problem = PlanProblem(weights, ready.machine.places, ready.compiled.legal_cuts)
    answer = PlanAnswer(
        problem,
        scheduled.plan,
        len(scheduled.plan.stages),
        [[taken_s] for taken_s in scheduled.foretold.stage_s],
        Outcome.FEASIBLE,
        None,
        aim=PlanAim(objective="latency", space=PARTITIONS),
    )
    if program is not None:
        progress(f"writing {program} and its parts")
        write_program(program, ready, scheduled)
    return SchemeAnswer(answer, scheduled, profiled, planning_s)
