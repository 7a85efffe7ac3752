"""Where measurements come from: a live pipeline, a simulated one, or a file of costs.

Tuners propose plans and are told what became of them; they never call this. One loop does (`pipeline/loop.py`), so
that the same code tunes all three.
"""

from __future__ import annotations

from typing import Protocol

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


class Evaluator(Protocol):
    """Runs plans, or says what they would do."""

    def measure(self, plan: Plan) -> Measurement:
        """What `plan` does; blocks until that is known.

        A plan that was tried and cannot run is an answer, not an error: its stages that fail take infinitely long.
        A plan that `verify.py` finds fault with is its maker's mistake, and raises ValueError before it runs.
        """
        ...
