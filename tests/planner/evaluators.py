"""Evaluators that tests write themselves, and costs made of whole numbers, so that sums are exact in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement


class ScriptedEvaluator:
    """Answers with the stage times written down for each plan (as its text); `asked` is what it was asked, in order."""

    def __init__(self, script: Mapping[str, Sequence[float]], band: float = 0.0) -> None:
        self._script = script
        self._band = band
        self.asked: list[str] = []

    def measure(self, proposal: Proposal) -> Measurement:
        self.asked.append(str(proposal.plan))
        return Measurement(tuple(self._script[str(proposal.plan)]), band=self._band, frames=1, took_s=1.0)


def costs_of(time_s: Sequence[Sequence[float | None]], ranks: Sequence[int], illegal_cuts: Sequence[int] = ()) -> Costs:
    """Layers x places; places p0, p1, ... of the given ranks; free transfers; every layer of weight 1."""
    transfer_s = np.zeros(len(time_s) - 1)
    transfer_s[list(illegal_cuts)] = np.nan
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 0, 0) for i in range(len(time_s))),
        places=tuple(CostPlace(f"p{i}", rank, None) for i, rank in enumerate(ranks)),
        time_s=np.array(time_s, dtype=np.float64),
        transfer_s=transfer_s,
    )
