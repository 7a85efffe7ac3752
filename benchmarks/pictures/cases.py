"""The walk and the costs for several pictures: SynthNet on C2, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from benchmarks.shisha.cases import SYNTHNET, Case, case, seeded
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.tune import DEFAULT_HEURISTIC, shisha

WALKED: Final = "C2"
"""Two fast places, and two whose cores take three times as long; each has eight cores."""
EQUAL: Final = "C6"
"""Eight equal places of four cores each."""
ON_WALKED: Final = f"SynthNet on machine {WALKED} of the Shisha paper, simulated from roofline costs"


@dataclass(frozen=True, slots=True)
class Walked:
    """The walk of Algorithm 2 from Algorithm 1's seed."""

    case: Case
    result: Result

    @property
    def seed(self) -> Plan:
        return self.result.trials[0].plan


@lru_cache
def walked() -> Walked:
    on = case(SYNTHNET, WALKED)
    walk = shisha(seeded(on), on.places, balance=DEFAULT_HEURISTIC.balance)
    return Walked(on, run(walk, SimulatedEvaluator(on.costs)))


@lru_cache
def equal() -> Case:
    return case(SYNTHNET, EQUAL)


def layers_of(stage: Stage) -> str:
    """A stage's layers in words."""
    return f"layer {stage.first}" if stage.first == stage.last else f"layers {stage.first}–{stage.last}"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
