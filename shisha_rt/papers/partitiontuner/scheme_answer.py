"""`shisha-rt plan` with a strategy that schedules partitions: the object of any plan, and how they run. Shell."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from shisha_rt.cli.plan import PlanOptions, model_on_machine
from shisha_rt.cli.progress import progress
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.outcome import Outcome
from shisha_rt.papers.partitiontuner.partition_profile import PartitionProfile, processor_costs
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.program import check_program_file, check_program_machine, write_program
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.planner.strategies import PARTITIONS, as_scheme
from shisha_rt.show.lines import counted
from shisha_rt.show.plan_answer import PlanAim, PlanAnswer, PlanProblem

_MOST_DRAWN: Final = 40


@dataclass(frozen=True, slots=True)
class SchemeAnswer:
    """`answer`: the plan's, by stages, without hand-overs; `planning_s`: how long planning took."""

    answer: PlanAnswer
    planned: SchemePlan
    profiled: PartitionProfile[ProcessorCosts]
    planning_s: float

    def as_object(self) -> dict[str, object]:
        """The object that `plan --json` prints, with hand-overs in its latency, and with `schedule`."""
        planned = self.planned
        return {
            **self.answer.as_object(),
            "latency_s": planned.foretold.latency_s,
            "lower_bound_s": planned.lower_bound_s,
            "schedule": {
                "scheme": planned.scheme,
                "partitions": len(planned.plan.stages),
                "parallel_branches": planned.parallel_branches,
                "parallel_partitions": planned.overlapping,
                "handover_s": planned.foretold.handover_s,
                "planning_s": self.planning_s,
                "profile": {
                    "partitions": self.profiled.partitions,
                    "distinct": self.profiled.distinct,
                    "measured": self.profiled.measured,
                    "seconds": self.profiled.seconds,
                },
            },
        }

    def in_words(self, width: int) -> str:
        planned, foretold, profiled = self.planned, self.planned.foretold, self.profiled
        stages = planned.plan.stages
        branches = f"{planned.parallel_branches or 'no'} parallel branches"
        if len(stages) > _MOST_DRAWN:
            picture = f"{len(stages)} partitions (--json lists them)"
        else:
            picture = self.answer.picture(width)
        return "\n".join(
            (
                picture,
                f"looked at: {profiled.partitions} operators and groups, {profiled.distinct} of them distinct; "
                f"{profiled.measured} measured now in {profiled.seconds:.3g} s, planned in {self.planning_s:.3g} s",
                f"{planned.scheme}: {counted(len(stages), 'partition')} on {', '.join(planned.plan.places)}, "
                f"{planned.overlapping} of them beside others; the network has {branches}",
                f"predicted: {foretold.latency_s * 1e3:.4g} ms a frame by itself, {foretold.handover_s * 1e3:.3g} ms "
                "of it hand-overs",
                f"proven: no schedule over these places takes less than {planned.lower_bound_s * 1e3:.4g} ms",
            )
        )


def schedule_partitions(asked: PlanOptions) -> SchemeAnswer:
    """Schedule partitions; if places have devices, each operator is a layer, so that cuts between any two are possible.

    `asked.program`: the file for a program of the schedule, if one is to be written.
    """
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
