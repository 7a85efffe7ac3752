"""Names of the placement solvers, so that a command's help can list them without importing any."""

from __future__ import annotations

from typing import Final, Literal, get_args

SolverName = Literal[
    "als",
    "als_literal",
    "exact",
    "milp",
    "brute",
    "priority",
    "duet",
    "baseline",
    "typeseq",
    "opseq",
    "partitiontuner",
    "forkjoin",
]

StageSolver = Literal["exact", "als"]
STAGE_SOLVERS: Final[tuple[StageSolver, ...]] = get_args(StageSolver)
"""How operators of a live stage are placed: at least cost (see `stage_problem`), or by the DCG papers' recurrence."""
