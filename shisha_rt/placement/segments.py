"""Segments: operators that follow one another in the graph's order on one device, and run as one engine session.

They run in sequence. What a segment reads and did not make comes from the stage's input or from another segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from shisha_rt.model.graph import Graph
from shisha_rt.model.spans import ends


@dataclass(frozen=True, slots=True)
class Segment:
    """Operators `first` to `last` (inclusive, of the graph) on `device` (a name).

    `inputs` name the run-time tensors that it reads and does not make, `outputs` those that it makes and a later
    operator reads or the graph outputs; each once. Both in the graph's order.
    """

    device: str
    first: int
    last: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def segments(graph: Graph, first: int, placement: Sequence[str]) -> tuple[Segment, ...]:
    """The segments of the operators from `first` on, whose devices `placement` names."""
    cut_segments = []
    for device, run in groupby(enumerate(placement, start=first), key=lambda entry: entry[1]):
        operators = [operator for operator, _ in run]
        cut_segments.append(segment(graph, operators[0], operators[-1], device))
    return tuple(cut_segments)


def segment(graph: Graph, first: int, last: int, device: str) -> Segment:
    return Segment(device, first, last, *ends(graph, first, last))
