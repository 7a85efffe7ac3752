"""The placement solvers by name, all behind one call: a problem and the options of `shisha-rt place`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shisha_rt.outcome import LeftSeconds, forever, within
from shisha_rt.placement.als import als, als_literal
from shisha_rt.placement.duet import DEFAULT_X, duet
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.milp import milp
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solution import PlacementSolution
from shisha_rt.placement.solver_names import SolverName
from shisha_rt.studies import study


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """Options of all solvers; each solver reads its own and ignores the rest.

    `priority`: the order of devices, by name. `duet`: x, in percent. `typeseq`: the accelerator's name, by default the
    last device. `left_s`: seconds until the time limit; solvers that make only a few passes over the nodes ignore it.
    """

    priority: tuple[str, ...] = ()
    duet_x: float = DEFAULT_X
    accelerator: str | None = None
    left_s: LeftSeconds = forever


_SOLVERS: Final[Mapping[SolverName, Callable[[Problem, SolverOptions], PlacementSolution]]] = MappingProxyType(
    {
        "als": lambda problem, options: als(problem, within(options.left_s)),
        "als_literal": lambda problem, options: als_literal(problem, within(options.left_s)),
        "exact": lambda problem, options: exact_placement(problem, left_s=options.left_s),
        "milp": lambda problem, options: milp(problem, left_s=options.left_s),
        "brute": lambda problem, options: study("brute")(problem, should_stop=within(options.left_s)),
        "priority": lambda problem, options: study("priority")(problem, options.priority),
        "duet": lambda problem, options: duet(problem, options.duet_x),
        "baseline": lambda problem, options: study("baseline")(problem),
        "typeseq": lambda problem, options: study("typeseq")(problem, options.accelerator),
        "opseq": lambda problem, options: study("opseq")(problem),
        "partitiontuner": lambda problem, options: study("partitiontuner")(problem, options.left_s),
        "forkjoin": lambda problem, options: study("forkjoin")(problem, options.left_s),
    }
)


def solve(name: SolverName, problem: Problem, options: SolverOptions | None = None) -> PlacementSolution:
    """Solve with the named solver. Raises BadInput for options that do not fit."""
    return _SOLVERS[name](problem, options or SolverOptions())
