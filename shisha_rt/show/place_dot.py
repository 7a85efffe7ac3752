"""A placement as Graphviz text: operators in the colour of their device, transfers as bold lines with their times."""

from __future__ import annotations

from collections.abc import Iterator

from shisha_rt.placement.check import groups_in_use
from shisha_rt.placement.problem import Assignment, Problem
from shisha_rt.placement.schedule import moves
from shisha_rt.show.picture import milliseconds

COLOURS = ("#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#d9d9d9")
"""By device, in the problem's order; with many devices colours repeat."""

TRANSFER_COLOUR = "#c0392b"


def placement_dot(title: str, problem: Problem, assignment: Assignment) -> str:
    """A digraph, one statement a line. Nodes are named n0, n1, ... as names of operators may be anything."""
    return "\n".join(["digraph placement {", *(f"  {line}" for line in _statements(title, problem, assignment)), "}\n"])


def _statements(title: str, problem: Problem, assignment: Assignment) -> Iterator[str]:
    yield f"label={_quoted(title)}; labelloc=t; rankdir=TB;"
    yield "node [shape=box, style=filled, fontsize=10]; edge [color=gray40, fontsize=9];"
    yield "subgraph cluster_devices {"
    yield '  label="devices";'
    for device, name in enumerate(problem.devices):
        yield f"  d{device} [label={_quoted(name)}, fillcolor={_quoted(colour_of(device))}];"
    yield "}"
    times = _times(problem, assignment)
    for index, (node, device) in enumerate(zip(problem.nodes, assignment, strict=True)):
        label = "\n".join(part for part in (node.name, node.op, times[index]) if part)
        yield f"n{index} [label={_quoted(label)}, fillcolor={_quoted(colour_of(device))}];"
    moved = {(move.tensor, consumer): move for move in moves(problem, assignment) for consumer in move.consumers}
    for index, tensor in enumerate(problem.tensors):
        for consumer in tensor.consumers:
            move = moved.get((index, consumer))
            style = ""
            if move is not None:
                # A copy with several readers is transferred once: only its first reader's edge shows the time.
                label = f"label={_quoted(milliseconds(move.cost_s))}, " if consumer == move.consumers[0] else ""
                style = f" [{label}color={_quoted(TRANSFER_COLOUR)}, penwidth=2]"
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


def colour_of(device: int) -> str:
    return COLOURS[device % len(COLOURS)]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
