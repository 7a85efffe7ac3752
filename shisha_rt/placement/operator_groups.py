"""Groups of operators that are measured as one (PartitionTuner, Section 3.1): the user names their types, in a row.

A group is a chain: each operator but the last hands all that it makes to the next one and to nothing else. What it
reads besides may come from anywhere. Groups may share operators; whoever uses them takes those that do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import onnx

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Graph

Pattern = tuple[str, ...]
"""Types of operators of ONNX, in a row."""

DEFAULT_PATTERNS: Final[tuple[Pattern, ...]] = (("Conv", "Relu"),)
"""The paper's."""

_BETWEEN: Final = "+"


def parse_patterns(texts: Iterable[str] | None) -> tuple[Pattern, ...]:
    """`["Conv+Relu"]` as `(("Conv", "Relu"),)`; without any those of the paper. Raises BadInput."""
    patterns: list[Pattern] = []
    for text in texts or ():
        pattern = tuple(text.split(_BETWEEN))
        if len(pattern) < 2:
            raise BadInput(
                f"--group {text}: one operator, expected two or more in a row, as Conv+Relu", Error.WRONG_OPTION
            )
        unknown = next((op for op in pattern if not onnx.defs.has(op)), None)
        if unknown is not None:
            raise BadInput(
                f"--group {text}: {unknown!r}: no operator of ONNX, expected names such as Conv+Relu",
                Error.WRONG_OPTION,
            )
        if pattern in patterns:
            raise BadInput(f"--group {text}: is named twice, expected once", Error.WRONG_OPTION)
        patterns.append(pattern)
    return tuple(patterns) or DEFAULT_PATTERNS


def operator_groups(graph: Graph, patterns: Sequence[Pattern]) -> tuple[tuple[int, ...], ...]:
    """All groups of these patterns: operators, ascending; by where they begin, then the shorter first."""
    after = [_only_reader(graph, operator) for operator in range(len(graph.operators))]
    groups = []
    for first in range(len(graph.operators)):
        for pattern in sorted(patterns, key=len):
            group = _begun(graph, pattern, first, after)
            if group:
                groups.append(group)
    return tuple(groups)


def _begun(graph: Graph, pattern: Pattern, first: int, after: Sequence[int | None]) -> tuple[int, ...]:
    """The group that begins with an operator; () if none does."""
    group: list[int] = []
    operator: int | None = first
    for op_type in pattern:
        if operator is None or graph.operators[operator].domain or graph.operators[operator].op_type != op_type:
            return ()
        group.append(operator)
        operator = after[operator]
    return tuple(group)


def _only_reader(graph: Graph, operator: int) -> int | None:
    """The operator to which this one hands all that it makes; None if there is another, or the graph's output is."""
    made = [name for name in graph.operators[operator].outputs if name in graph.needed_until]
    if any(graph.needed_until[name] == len(graph.operators) for name in made):
        return None
    readers = {reader for name in made for reader in graph.consumers[name]}
    return readers.pop() if len(readers) == 1 else None
