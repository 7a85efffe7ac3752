"""Groups of operators measured as one (PartitionTuner, Section 3.1); the user gives the sequence of operator types.

A group is a chain: all outputs of each operator but the last are read by the next one only. Other inputs may come from
anywhere. Groups may share operators; only disjoint groups are used together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import onnx

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Graph

Pattern = tuple[str, ...]
"""A sequence of ONNX operator types."""

DEFAULT_PATTERNS: Final[tuple[Pattern, ...]] = (("Conv", "Relu"),)
"""The paper's pattern."""

_BETWEEN: Final = "+"


def parse_patterns(texts: Iterable[str] | None) -> tuple[Pattern, ...]:
    """Parse `["Conv+Relu"]` into `(("Conv", "Relu"),)`; without texts, return `DEFAULT_PATTERNS`. Raises BadInput."""
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
    """All groups of these patterns, each as ascending operators; sorted by first operator, then by length."""
    after = [_only_reader(graph, operator) for operator in range(len(graph.operators))]
    groups = []
    for first in range(len(graph.operators)):
        for pattern in sorted(patterns, key=len):
            group = _begun(graph, pattern, first, after)
            if group:
                groups.append(group)
    return tuple(groups)


def _begun(graph: Graph, pattern: Pattern, first: int, after: Sequence[int | None]) -> tuple[int, ...]:
    """The group of the pattern that begins with operator `first`; () if there is none."""
    group: list[int] = []
    operator: int | None = first
    for op_type in pattern:
        if operator is None or graph.operators[operator].domain or graph.operators[operator].op_type != op_type:
            return ()
        group.append(operator)
        operator = after[operator]
    return tuple(group)


def _only_reader(graph: Graph, operator: int) -> int | None:
    """The only operator that reads this one's outputs; None if there is none, or an output is also the graph's."""
    made = [name for name in graph.operators[operator].outputs if name in graph.needed_until]
    if any(graph.needed_until[name] == len(graph.operators) for name in made):
        return None
    readers = {reader for name in made for reader in graph.consumers[name]}
    return readers.pop() if len(readers) == 1 else None
