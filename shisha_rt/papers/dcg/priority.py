"""Each node on the first device of an order that can run it: placement by hand, and the papers' baseline.

It ignores costs of nodes and of transfers, so it is good only if one device is the best for all that it can run
(DCG-2024, Section 4.3: (CPU_P, PIM, CPU_S) and (PIM, CPU_P, CPU_S)).
"""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.checked import shown
from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import HEURISTIC, Outcome
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution


def priority(problem: Problem, order: Sequence[str] = ()) -> PlacementSolution:
    """Place by `order`, names of devices; devices that it leaves out come last, in the order of the problem.

    Raises BadInput for a device that is unknown or named twice.
    """
    ranked = [problem.device_named(name, "priority") for name in order]
    if len(set(ranked)) < len(ranked):
        raise BadInput(f"priority = {shown(','.join(order))}: expected each device once", Error.WRONG_OPTION)
    ranked += [device for device in range(len(problem.devices)) if device not in ranked]
    assignment = tuple(
        next(device for device in ranked if device in capable) for capable in (node.capable for node in problem.nodes)
    )
    return PlacementSolution(assignment, Outcome.FEASIBLE, reason=HEURISTIC)
