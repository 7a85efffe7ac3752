"""Runs of consecutive layers or operators: groups that no legal cut divides, a run's inputs and outputs, and bytes.

A span is the first and the last layer or operator of a run, both inclusive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that only show spans need no arrays
    from shisha_rt.model.graph import Graph

Span = tuple[int, int]
"""First and last, inclusive."""


def starts_of(layer_count: int, legal_cuts: Collection[int] | None) -> tuple[int, ...]:
    """(groups + 1,): the first layer of each group, and the number of layers."""
    cuts = range(layer_count - 1) if legal_cuts is None else sorted(legal_cuts)
    return (0, *(cut + 1 for cut in cuts), layer_count)


def groups_of(layer_count: int, legal_cuts: Collection[int] | None) -> tuple[Span, ...]:
    """Divide a model at every legal cut: each group of layers is the smallest possible stage.

    Cut c lies between layers c and c+1; None: every cut is legal.
    """
    return tuple((start, end - 1) for start, end in pairwise(starts_of(layer_count, legal_cuts)))


def runs_of(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Ascending layers or operators as maximal runs."""
    runs: list[Span] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return tuple(runs)


def spans_listed(spans: Iterable[Span]) -> str:
    """`3`, `3-5, 9`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def layers_in_words(spans: Sequence[Span]) -> str:
    """`layer 3`, `layers 3-5`, `layers 3-5, 9`."""
    return f"layer{'s' * (len(spans) > 1 or spans[0][0] < spans[0][1])} {spans_listed(spans)}"


def ends(graph: Graph, first: int, last: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tensors that operators `first` to `last` read and do not make, and those that they make for use outside.

    Names of run-time tensors, each once, in the order in which they are met.
    """
    return ends_of(graph, ((first, last),))


def ends_of(graph: Graph, runs: Sequence[Span]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Inputs and outputs of several runs of operators taken as one, as in `ends`; `runs` are in the graph's order."""
    made: dict[str, None] = {}
    read: dict[str, None] = {}
    here = {operator for first, last in runs for operator in range(first, last + 1)}
    for first, last in runs:
        for operator in graph.operators[first : last + 1]:
            read.update((name, None) for name in operator.inputs if name in graph.tensors and name not in made)
            made.update((name, None) for name in operator.outputs if name)
    return tuple(read), tuple(name for name in made if graph.is_needed_beyond(name, here))


def live_bytes(graph: Graph) -> tuple[int, ...]:
    """(operators,): bytes of the tensors that cross a cut right after each operator, graph inputs included."""
    changes = [0] * (len(graph.operators) + 1)
    for name, made in {**{tensor.name: 0 for tensor in graph.inputs}, **graph.producer}.items():
        until = graph.needed_until.get(name, made)
        if until > made:
            size = graph.tensors[name].size_bytes
            changes[made] += size
            changes[until] -= size
    return tuple(accumulate(changes[:-1]))


def moved_bytes(graph: Graph, first: int, last: int) -> int:
    """Bytes of the weights, inputs and outputs of operators `first` to `last` as one stage, each counted once."""
    inputs, outputs = ends(graph, first, last)
    return weight_bytes(graph, first, last) + sum(graph.tensors[name].size_bytes for name in (*inputs, *outputs))


def weight_bytes(graph: Graph, first: int, last: int) -> int:
    """Bytes of the constants that operators `first` to `last` read, each counted once."""
    read = {name for operator in graph.operators[first : last + 1] for name in operator.inputs}
    return sum(graph.constants[name].size_bytes for name in read if name in graph.constants)
