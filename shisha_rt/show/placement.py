"""A placement shown: in words (each device's work, the transfers, the gap to the optimum, costs of simpler placements);
as Graphviz text, with operators in the colour of their device and transfers as bold lines with their times; and as a
PNG, with operators from left to right in their order, a lane for each device, transfers between.

In the PNG the order is broken into strips, one below the other, so that a network of thousands of operators stays
readable. It needs matplotlib (the extra `plot`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shisha_rt.outcome import Outcome
from shisha_rt.placement.check import cost, fastest_alone, groups_in_use
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.schedule import Move, Schedule, moves
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.show.figure import new_figure, write_figure
from shisha_rt.show.lines import counted, plain_console, plain_table
from shisha_rt.show.picture import cut, milliseconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

_COLOURS: Final = ("#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#d9d9d9")
"""By device, in the problem's order; with many devices colours repeat."""

_TRANSFER_COLOUR: Final = "#c0392b"
_STRIP: Final = 60  # operators
_LABEL_ROOM: Final = 3.0  # lanes, for the operators' types above a strip
_LABEL: Final = 20  # characters that fit into it, such as MatMulIntegerToFloat
_WIDTH: Final = 18.0  # inches
_LANE_HEIGHT: Final = 0.3
_HEAD: Final = 0.7
_PIXELS_PER_INCH: Final = 110
_MAX_PIXELS: Final = 60_000  # of a side; matplotlib's PNG writer allows fewer than 65,536

_Point = tuple[float, float]


# --- in words -----------------------------------------------------------------------------------------------


def print_report(title: str, problem: Problem, solution: PlacementSolution, solver: str, solve_time_s: float) -> None:
    """Print a report to standard output; the solution must have an assignment."""
    assert solution.assignment is not None
    console = plain_console()
    console.print(f"{title}\n", soft_wrap=True)
    console.print(_devices(problem, solution.assignment))
    costed = cost(problem, solution.assignment)
    lines = [
        f"cost {milliseconds(costed.total_s)}: operators {milliseconds(costed.node_s)}, "
        f"transfers {milliseconds(costed.transfer_s)} ({solver}, solved in {milliseconds(solve_time_s)})",
        *([] if solution.schedule is None else [_overlap(solution.schedule)]),
        _proven(costed.total_s, solution),
        *_instead(problem, costed.total_s),
    ]
    console.print("\n".join(lines), soft_wrap=True)


def _devices(problem: Problem, assignment: Assignment) -> Table:
    table = plain_table()
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
    return table


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
    for what, assignment in {**alike, "each on its fastest device": fastest_alone(problem)}.items():
        other_s = cost(problem, assignment).total_s
        if other_s == math.inf:
            continue  # groups that overlap
        times = f", {other_s / cost_s:.3g} times as long" if cost_s else ""
        yield f"{what}: {milliseconds(other_s)}{times}"


# --- as pictures ----------------------------------------------------------------------------------------------


def placement_dot(title: str, problem: Problem, assignment: Assignment) -> str:
    """A digraph, one statement a line. Nodes are named n0, n1, ... as names of operators may be anything."""
    return "\n".join(["digraph placement {", *(f"  {line}" for line in _statements(title, problem, assignment)), "}\n"])


def _statements(title: str, problem: Problem, assignment: Assignment) -> Iterator[str]:
    yield f"label={_quoted(title)}; labelloc=t; rankdir=TB;"
    yield "node [shape=box, style=filled, fontsize=10]; edge [color=gray40, fontsize=9];"
    yield "subgraph cluster_devices {"
    yield '  label="devices";'
    for device, name in enumerate(problem.devices):
        yield f"  d{device} [label={_quoted(name)}, fillcolor={_quoted(_colour(device))}];"
    yield "}"
    times = _times(problem, assignment)
    for index, (node, device) in enumerate(zip(problem.nodes, assignment, strict=True)):
        label = "\n".join(part for part in (node.name, node.op, times[index]) if part)
        yield f"n{index} [label={_quoted(label)}, fillcolor={_quoted(_colour(device))}];"
    moved = _moved(problem, assignment)
    for index, tensor in enumerate(problem.tensors):
        for consumer in tensor.consumers:
            move = moved.get((index, consumer))
            style = ""
            if move is not None:
                # A copy with several readers is transferred once: only its first reader's edge shows the time.
                label = f"label={_quoted(milliseconds(move.cost_s))}, " if consumer == move.consumers[0] else ""
                style = f" [{label}color={_quoted(_TRANSFER_COLOUR)}, penwidth=2]"
            yield f"n{tensor.producer} -> n{consumer}{style};"


def _times(problem: Problem, assignment: Assignment) -> list[str]:
    """(nodes,): time of each in words; the first node of a group shows the time of the group."""
    times = [milliseconds(node.cost_s[device]) for node, device in zip(problem.nodes, assignment, strict=True)]
    for group in groups_in_use(problem, assignment):
        first, *others = group.nodes
        times[first] = f"{milliseconds(group.cost_s)}, group of {len(group.nodes)}"
        for node in others:
            times[node] = f"with {problem.nodes[first].name}"
    return times


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _colour(device: int) -> str:
    return _COLOURS[device % len(_COLOURS)]


def _moved(problem: Problem, assignment: Assignment) -> dict[tuple[int, int], Move]:
    return {(move.tensor, consumer): move for move in moves(problem, assignment) for consumer in move.consumers}


def save_placement(path: Path, title: str, problem: Problem, assignment: Assignment) -> None:
    """Write a PNG. Raises NoFigure without matplotlib, or if the file cannot be written."""
    strips = math.ceil(len(problem.nodes) / _STRIP)
    lanes = strips * _strip_height(problem)
    height = _HEAD + _LANE_HEIGHT * lanes
    figure = new_figure(_WIDTH, height)
    axes = figure.add_axes((0.05, 0.0, 0.94, 1 - _HEAD / height))
    axes.set_xlim(-1, min(_STRIP, len(problem.nodes)) + 0.5)
    axes.set_ylim(lanes, 0)
    axes.axis("off")
    costed = cost(problem, assignment)
    costs = f"{milliseconds(costed.total_s)}, transfers {milliseconds(costed.transfer_s)} of it"
    of_each = "; on each transfer (red) its µs" if costed.transfer_s else ""
    figure.suptitle(f"{title}\n{costs}{of_each}", fontsize=11, y=1 - 0.1 / height)
    _draw_operators(axes, problem, assignment)
    _draw_tensors(axes, problem, assignment)
    write_figure(figure, path, min(_PIXELS_PER_INCH, _MAX_PIXELS / height))


def _strip_height(problem: Problem) -> float:
    return len(problem.devices) + _LABEL_ROOM


def _point(problem: Problem, assignment: Assignment, node: int) -> _Point:
    strip, x = divmod(node, _STRIP)
    return x, strip * _strip_height(problem) + _LABEL_ROOM + assignment[node]


def _draw_operators(axes: Axes, problem: Problem, assignment: Assignment) -> None:
    points = [_point(problem, assignment, node) for node in range(len(problem.nodes))]
    for device, name in enumerate(problem.devices):
        for strip in range(0, len(problem.nodes), _STRIP):
            y = strip // _STRIP * _strip_height(problem) + _LABEL_ROOM + device
            axes.axhline(y, color="0.93", linewidth=8, zorder=0)
            axes.text(-1.2, y, name, ha="right", va="center", fontsize=8)
        on_device = [point for point, d in zip(points, assignment, strict=True) if d == device]
        if on_device:
            xs, ys = zip(*on_device, strict=True)
            axes.scatter(xs, ys, s=70, marker="s", color=_colour(device), edgecolor="0.3", linewidth=0.5, zorder=3)
    for index, (node, (x, _)) in enumerate(zip(problem.nodes, points, strict=True)):
        y = index // _STRIP * _strip_height(problem) + _LABEL_ROOM - 0.6
        axes.text(x, y, cut(node.op or node.name, _LABEL), rotation=90, ha="center", va="bottom", fontsize=6)


def _draw_tensors(axes: Axes, problem: Problem, assignment: Assignment) -> None:
    from matplotlib.collections import LineCollection

    moved = _moved(problem, assignment)
    still: list[list[_Point]] = []
    crossing: list[list[_Point]] = []
    for index, tensor in enumerate(problem.tensors):
        for consumer in tensor.consumers:
            source, target = (_point(problem, assignment, node) for node in (tensor.producer, consumer))
            lines = list(_pieces(tensor.producer // _STRIP, consumer // _STRIP, source, target))
            move = moved.get((index, consumer))
            (still if move is None else crossing).extend(lines)
            if move is not None and consumer == move.consumers[0]:
                (x0, y0), (x1, y1) = lines[-1]
                middle = (x0 + x1) / 2, (y0 + y1) / 2
                axes.text(
                    *middle, f"{move.cost_s * 1e6:.0f}", fontsize=5, ha="center", va="center", zorder=4, color="0.2"
                )
    axes.add_collection(LineCollection(still, colors="0.6", linewidths=0.6, zorder=1))
    axes.add_collection(LineCollection(crossing, colors=_TRANSFER_COLOUR, linewidths=1.0, zorder=2))


def _pieces(first: int, last: int, source: _Point, target: _Point) -> Iterator[list[_Point]]:
    """Lines from one operator to another; between strips, one leaves on the right and one enters from the left."""
    if first == last:
        yield [source, target]
    else:
        yield [source, (_STRIP - 0.4, source[1])]
        yield [(-0.6, target[1]), target]
