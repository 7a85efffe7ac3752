"""The placement solvers by name, all behind one call: a problem and the options of `shisha-rt place`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shisha_rt.errors import BadInput
from shisha_rt.placement.als import als, als_literal
from shisha_rt.placement.brute import brute
from shisha_rt.placement.duet import DEFAULT_X, duet
from shisha_rt.placement.exact import FALLBACK_TIME_LIMIT_S, exact_placement
from shisha_rt.placement.milp import milp
from shisha_rt.placement.priority import priority
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import Solution
from shisha_rt.placement.solver_names import SolverName


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """Each solver reads its own and leaves the rest.

    `priority`: the order of devices, by name. `duet`: x, in percent. `milp`, and `exact` where it falls back to it:
    the time limit; None is the solver's own.
    """

    priority: tuple[str, ...] = ()
    duet_x: float = DEFAULT_X
    time_limit_s: float | None = None


def _exact(problem: Problem, options: SolverOptions) -> Solution:
    time_limit_s = FALLBACK_TIME_LIMIT_S if options.time_limit_s is None else options.time_limit_s
    return exact_placement(problem, time_limit_s=time_limit_s)


_SOLVERS: Final[Mapping[SolverName, Callable[[Problem, SolverOptions], Solution]]] = MappingProxyType(
    {
        "als": lambda problem, _: als(problem),
        "als_literal": lambda problem, _: als_literal(problem),
        "exact": _exact,
        "milp": lambda problem, options: milp(problem, options.time_limit_s),
        "brute": lambda problem, _: brute(problem),
        "priority": lambda problem, options: priority(problem, options.priority),
        "duet": lambda problem, options: duet(problem, options.duet_x),
    }
)
BUILT: Final[tuple[SolverName, ...]] = tuple(_SOLVERS)


def solve(name: SolverName, problem: Problem, options: SolverOptions | None = None) -> Solution:
    """Solve with the named solver. Raises BadInput for one that is not built yet, and for options that do not fit."""
    if name not in _SOLVERS:
        raise BadInput(f"--solver {name}: not built yet, expected one of {', '.join(BUILT)}")
    return _SOLVERS[name](problem, options or SolverOptions())
