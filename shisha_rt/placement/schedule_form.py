"""A schedule as `place --json` writes it."""

from __future__ import annotations

from typing import Any

from shisha_rt.placement.problem import Problem
from shisha_rt.placement.schedule import Partition, Schedule


def schedule_object(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """`makespan_s`, and the sections one after the other; the lanes of a section run at the same time."""

    def partition(partition: Partition) -> dict[str, Any]:
        return {
            "device": problem.devices[partition.device],
            "nodes": [problem.nodes[node].name for node in partition.nodes],
            "start_s": partition.start_s,
            "end_s": partition.end_s,
        }

    return {
        "makespan_s": schedule.makespan_s,
        "schedule": [
            {
                "start_s": section.start_s,
                "end_s": section.end_s,
                "lanes": [[partition(scheduled) for scheduled in lane] for lane in section.lanes],
            }
            for section in schedule.sections
        ],
    }
