"""Where measurements come from: a live pipeline, a simulated one, or a file of costs.

Tuners propose plans and are told what became of them; they never call this. One loop does (`planner/loop.py`), so
that the same code tunes all three. It hands on the proposal whole: who measures may also have to say why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan to measure and why; the `final` one is not to be measured, but to stay: the best plan measured.

    `lower_bound_s`: no plan is faster by the costs that the tuner goes by; None: it has none.
    """

    plan: Plan
    reason: str
    final: bool = False
    lower_bound_s: float | None = None


class Evaluator(Protocol):
    """Runs plans, or says what they would do."""

    def measure(self, proposal: Proposal) -> Measurement:
        """What the plan does that is proposed, which is not the final one; blocks until that is known.

        A plan that was tried and cannot run is an answer, not an error: its stages that fail take infinitely long.
        A plan that `verify.py` finds fault with is its maker's mistake, and raises ValueError before it runs.
        """
        ...
