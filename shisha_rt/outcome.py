"""How a solver can end. Solvers return data; they raise for bad input only. Pure."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """`LIMIT`: stopped by a limit without a solution. `FEASIBLE`: a solution, not shown to be the best."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    LIMIT = "limit"
