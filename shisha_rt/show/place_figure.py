"""A placement as a picture: operators from left to right in their order, a lane for each device, transfers between.

The order is broken into strips, one below the other, so that a network of thousands of operators stays readable. Needs
matplotlib (the extra `plot`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.schedule import moves
from shisha_rt.show.figure import new_figure, write_figure
from shisha_rt.show.picture import milliseconds
from shisha_rt.show.place_dot import TRANSFER_COLOUR, colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP: Final = 60  # operators
_LABEL_ROOM: Final = 3.0  # lanes, for the operators' types above a strip
_LABEL: Final = 20  # characters that fit into it, such as MatMulIntegerToFloat
_WIDTH: Final = 18.0  # inches
_LANE_HEIGHT: Final = 0.3
_HEAD: Final = 0.7
_PIXELS_PER_INCH: Final = 110
_MAX_PIXELS: Final = 60_000  # of a side; matplotlib's PNG writer allows fewer than 65,536

_Point = tuple[float, float]


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
            axes.scatter(xs, ys, s=70, marker="s", color=colour_of(device), edgecolor="0.3", linewidth=0.5, zorder=3)
    for index, (node, (x, _)) in enumerate(zip(problem.nodes, points, strict=True)):
        y = index // _STRIP * _strip_height(problem) + _LABEL_ROOM - 0.6
        name = node.op or node.name
        label = name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"
        axes.text(x, y, label, rotation=90, ha="center", va="bottom", fontsize=6)


def _draw_tensors(axes: Axes, problem: Problem, assignment: Assignment) -> None:
    from matplotlib.collections import LineCollection

    moved = {(move.tensor, consumer): move for move in moves(problem, assignment) for consumer in move.consumers}
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
    axes.add_collection(LineCollection(crossing, colors=TRANSFER_COLOUR, linewidths=1.0, zorder=2))


def _pieces(first: int, last: int, source: _Point, target: _Point) -> Iterator[list[_Point]]:
    """Lines from one operator to another; between strips, one leaves on the right and one enters from the left."""
    if first == last:
        yield [source, target]
    else:
        yield [source, (_STRIP - 0.4, source[1])]
        yield [(-0.6, target[1]), target]
