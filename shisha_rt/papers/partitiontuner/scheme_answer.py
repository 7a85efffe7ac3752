"""The answer of `plan` with a scheme: the object of any plan, and how its partitions run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shisha_rt.show.lines import counted
from shisha_rt.show.plan_answer import PlanAnswer

if TYPE_CHECKING:
    from shisha_rt.papers.partitiontuner.measured_processors import ProfiledProcessors
    from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan

_MOST_DRAWN: Final = 40


@dataclass(frozen=True, slots=True)
class SchemeAnswer:
    """`answer`: the plan's, by stages, without hand-overs; `planning_s`: how long planning took."""

    answer: PlanAnswer
    found: SchemePlan
    profiled: ProfiledProcessors
    planning_s: float

    def as_object(self) -> dict[str, object]:
        """The object that `plan --json` prints, with hand-overs in its latency, and with `schedule`."""
        scheme_plan = self.found
        return {
            **self.answer.as_object(),
            "latency_s": scheme_plan.foretold.latency_s,
            "lower_bound_s": scheme_plan.lower_bound_s,
            "schedule": {
                "scheme": scheme_plan.scheme,
                "partitions": len(scheme_plan.plan.stages),
                "parallel_branches": scheme_plan.parallel_branches,
                "parallel_partitions": scheme_plan.overlapping,
                "handover_s": scheme_plan.foretold.handover_s,
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
        scheme_plan, foretold, profiled = self.found, self.found.foretold, self.profiled
        stages = scheme_plan.plan.stages
        branches = f"{scheme_plan.parallel_branches or 'no'} parallel branches"
        if len(stages) > _MOST_DRAWN:
            picture = f"{len(stages)} partitions (--json lists them)"
        else:
            picture = self.answer.picture(width)
        return "\n".join(
            (
                picture,
                f"looked at: {profiled.partitions} operators and groups, {profiled.distinct} of them distinct; "
                f"{profiled.measured} measured now in {profiled.seconds:.3g} s, planned in {self.planning_s:.3g} s",
                f"{scheme_plan.scheme}: {counted(len(stages), 'partition')} on {', '.join(scheme_plan.plan.places)}, "
                f"{scheme_plan.overlapping} of them beside others; the network has {branches}",
                f"predicted: {foretold.latency_s * 1e3:.4g} ms a frame by itself, {foretold.handover_s * 1e3:.3g} ms "
                "of it hand-overs",
                f"proven: no schedule over these places takes less than {scheme_plan.lower_bound_s * 1e3:.4g} ms",
            )
        )
