"""Where measurements come from: a live pipeline, a simulated one, or a file of costs.

Tuners propose plans and receive measurements; they never call an evaluator. One loop does (`planner/loop.py`), so the
same code tunes with all three. It passes on the whole proposal, as an evaluator may have to report the reason, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan to measure, and why. The `final` one is the best plan measured, which is to stay; it is not measured.

    `lower_bound_s`: no plan is faster by the tuner's costs; None: it has no bound.
    """

    plan: Plan
    reason: str
    final: bool = False
    lower_bound_s: float | None = None


class Evaluator(Protocol):
    """Runs plans, or predicts their measurements."""

    def measure(self, proposal: Proposal) -> Measurement:
        """Measure the plan of a proposal that is not final; blocks until it is measured.

        That a plan cannot run is a result, not an error: stages that fail take infinitely long. A plan that `verify.py`
        rejects is its maker's mistake, and raises ValueError before it runs.
        """
        ...
