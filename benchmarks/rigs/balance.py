"""The best two-stage plan by measurements: the cut at which the slower of two stages is the fastest.

The first stage grows with the cut and the second shrinks, so bisection finds where they are equal; the cuts next to it
are then compared more carefully, in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.rigs.stage_rig import Loaded, Rate, StageRig

_GLANCE_S: Final = 0.15
_LOOK_S: Final = 0.3
_LOOKS: Final = 3
_NEIGHBOURS: Final = 1  # on each side of where the two stages are equal


@dataclass(frozen=True, slots=True)
class TwoStages:
    """Layers up to `cut` loaded on worker 0 and the rest on worker 1; `rates`: with both busy."""

    cut: int
    stages: tuple[Loaded, Loaded]
    rates: tuple[Rate, Rate]

    @property
    def slowest(self) -> int:
        return 0 if self.rates[0].frame_s >= self.rates[1].frame_s else 1

    @property
    def bottleneck_s(self) -> float:
        return self.rates[self.slowest].frame_s


def best_two_stages(rig: StageRig, legal_cuts: Sequence[int], layer_count: int) -> TwoStages:
    """The best cut between two workers, with both busy; its stages stay loaded."""
    cuts = sorted(legal_cuts)
    low, high = 0, len(cuts) - 1
    while low < high:
        middle = (low + high) // 2
        trial = _load(rig, cuts[middle], layer_count)
        _unload(rig, trial)
        if trial.slowest == 0:
            high = middle
        else:
            low = middle + 1
    near = cuts[max(0, low - 1 - _NEIGHBOURS) : low + _NEIGHBOURS + 1]
    trials = [_load(rig, cut, layer_count) for cut in near]
    looks = [[_look(rig, trial) for trial in trials] for _ in range(_LOOKS)]
    medians = [statistics.median(look[i].bottleneck_s for look in looks) for i in range(len(trials))]
    best = medians.index(min(medians))
    for i, trial in enumerate(trials):
        if i != best:
            _unload(rig, trial)
    return min((look[best] for look in looks), key=lambda look: abs(look.bottleneck_s - medians[best]))


def _load(rig: StageRig, cut: int, layer_count: int) -> TwoStages:
    """Load the two stages of a cut, and measure their times briefly."""
    stages = rig.load(0, 0, cut), rig.load(1, cut + 1, layer_count - 1)
    alone = [rig.alone(stage, _GLANCE_S) for stage in stages]
    return TwoStages(cut, stages, (alone[0], alone[1]))


def _unload(rig: StageRig, trial: TwoStages) -> None:
    for stage in trial.stages:
        rig.unload(stage)


def _look(rig: StageRig, trial: TwoStages) -> TwoStages:
    first, second = rig.saturate(trial.stages, [rate.service_s for rate in trial.rates], _LOOK_S)
    return TwoStages(trial.cut, trial.stages, (first, second))
