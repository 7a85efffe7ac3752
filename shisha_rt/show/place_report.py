"""A placement in words: each device's work, the transfers, the gap to the optimum, and costs of simpler placements."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shisha_rt.outcome import Outcome
from shisha_rt.placement.check import cost, fastest_alone, groups_in_use
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.schedule import Move, Schedule, moves
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.show.lines import counted
from shisha_rt.show.picture import milliseconds


def print_report(title: str, problem: Problem, solution: PlacementSolution, solver: str, solve_time_s: float) -> None:
    """Print a report to standard output; the solution must have an assignment."""
    from rich.console import Console

    assert solution.assignment is not None
    console = Console(highlight=False, markup=False)
    console.print(f"{title}\n", soft_wrap=True)
    _print_devices(problem, solution.assignment)
    costed = cost(problem, solution.assignment)
    lines = [
        f"cost {milliseconds(costed.total_s)}: operators {milliseconds(costed.node_s)}, "
        f"transfers {milliseconds(costed.transfer_s)} ({solver}, solved in {milliseconds(solve_time_s)})",
        *([] if solution.schedule is None else [_overlap(solution.schedule)]),
        _proven(costed.total_s, solution),
        *_instead(problem, costed.total_s),
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _print_devices(problem: Problem, assignment: Assignment) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("device", no_wrap=True)
    table.add_column("operators", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    groups = groups_in_use(problem, assignment)
    grouped = {node for group in groups for node in group.nodes}
    for device, name in enumerate(problem.devices):
        there = [node for node, d in enumerate(assignment) if d == device]
        costs_s = [problem.nodes[node].cost_s[device] for node in there if node not in grouped]
        costs_s += [group.cost_s for group in groups if group.device == device]
        table.add_row(name, str(len(there)), milliseconds(math.fsum(costs_s)))
    if problem.groups:
        table.add_row("in groups", str(len(grouped)), milliseconds(math.fsum(group.cost_s for group in groups)))
    table.add_section()
    moved: dict[tuple[str, str], list[Move]] = {}
    for move in moves(problem, assignment):
        between = problem.memories[problem.memory_of[move.source]], problem.memories[move.memory]
        moved.setdefault(between, []).append(move)
    for (source, target), moves_there in sorted(moved.items()):
        taken_s = math.fsum(move.cost_s for move in moves_there)
        table.add_row(f"{source} -> {target}", counted(len(moves_there), "transfer"), milliseconds(taken_s))
    Console(highlight=False, markup=False).print(table)


def _proven(cost_s: float, solution: PlacementSolution) -> str:
    bound_s, why = solution.lower_bound_s, "" if solution.reason is None else f" ({solution.reason})"
    if bound_s is None:
        return f"{solution.outcome}: no lower bound is proven{why}"
    what = "assignment costs"
    if solution.bounds == "makespan" and solution.schedule is not None:
        what, cost_s = "such schedule takes", solution.schedule.makespan_s
    gap = f", this one {cost_s / bound_s - 1:.1%} more" if bound_s and solution.outcome is not Outcome.OPTIMAL else ""
    return f"{solution.outcome}: no {what} less than {milliseconds(bound_s)}{gap}{why}"


def _overlap(schedule: Schedule) -> str:
    beside = f"{len(schedule.overlapping) or 'no'} branches run beside others"
    return f"makespan {milliseconds(schedule.makespan_s)}: {counted(len(schedule.partitions), 'partition')}, {beside}"


def _instead(problem: Problem, cost_s: float) -> Iterator[str]:
    """Costs of simpler assignments: all operators on one device, and each operator on its fastest device."""
    alike: dict[str, Assignment] = {
        f"all on {name}": [device] * len(problem.nodes)
        for device, name in enumerate(problem.devices)
        if all(device in devices for devices in problem.devices_of)
    }
    fastest = fastest_alone(problem)
    for what, assignment in {**alike, "each on its fastest device": fastest}.items():
        other_s = cost(problem, assignment).total_s
        if other_s == math.inf:
            continue  # groups that overlap
        times = f", {other_s / cost_s:.3g} times as long" if cost_s else ""
        yield f"{what}: {milliseconds(other_s)}{times}"
