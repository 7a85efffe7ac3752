"""Figure 7: what schemes do to answers. There are no trained weights, so int8 is held against floating point instead.

Frames are noise, and none is one that scales were found on. The paper's figure is of four networks, which its text does
not name; here those on which its schemes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.partitiontuner.accuracy import closeness, sides_of_file
from benchmarks.partitiontuner.cases import TITLES, Planned
from benchmarks.report.results import Row

FIGURE_7: Final = ("resnet50", "resnext50", "resnet18", "squeezenet")
_SEED: Final = 1


def closeness_rows(plans: Sequence[Planned], frames: int) -> list[Row]:
    """Of schemes on one case, each with the operators on the NPU that it puts there; without the CPU alone."""
    found: dict[tuple[int, ...], dict[str, float]] = {}
    for its in plans:
        if its.scheme != "baseline" and its.found.assignment not in found:
            found[its.found.assignment] = _closeness(its, frames)
    return [
        {
            "network": its.case.published.title,
            "form": its.case.form,
            "scheme": TITLES[its.scheme],
            "Convs on NPU": its.convs_on_npu,
            "of": its.convs,
            "cosine": close["cosine"],
            "1 - cosine": 1 - close["cosine"],
            "signal to noise dB": close["signal_to_noise_db"],
            "frames": frames,
        }
        for its in plans
        for close in [found.get(its.found.assignment)]
        if its.scheme != "baseline" and close is not None
    ]


def _closeness(its: Planned, frames: int) -> dict[str, float]:
    npu = 1
    sides = sides_of_file(str(its.case), its.case.path, lambda _: [place == npu for place in its.found.assignment])
    generator = np.random.default_rng(_SEED)
    shape = sides.graph.inputs[0].shape
    return closeness([sides.answers(generator.standard_normal(shape, np.float32)) for _ in range(frames)])
