"""Figure 7: the effect of schemes on answers. Without trained weights, int8 is compared with floating point instead.

Frames are noise, other than those for calibration. The paper's figure is of four networks, which its text does not
name; here it is of those for which the schemes differ. One trained network, the zoo's reader of text, is run by the
same schemes on the same board, and the lines that it reads correctly are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.partitiontuner.accuracy import READER, closeness, read_row, sides_of_file
from benchmarks.partitiontuner.board import board_costs, board_devices
from benchmarks.partitiontuner.cases import TITLES, Planned
from benchmarks.partitiontuner.published import SCHEMES as PUBLISHED
from benchmarks.report.results import Row
from shisha_rt.measure.compile import compile_model
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner.scheme_plans import scheme_plan

FIGURE_7: Final = ("resnet50", "resnext50", "resnet18", "squeezenet")
_SEED: Final = 1


def closeness_rows(plans: Sequence[Planned], frames: int) -> list[Row]:
    """Rows for the schemes of one case, each with its own operators on the NPU; without the CPU alone."""
    found: dict[tuple[int, ...], dict[str, float]] = {}
    for its in plans:
        if its.scheme != "baseline" and its.found.assignment not in found:
            found[its.found.assignment] = _closeness(its, frames)
    return [
        {
            "network": its.case.published.title,
            "form": its.case.form,
            "scheme": TITLES[its.scheme],
            "Convs on NPU": its.cell.convs_on_npu,
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


def reader_scheme_rows(lines: int) -> list[Row]:
    """Rows for the trained reader by the paper's schemes, each with its own operators on the NPU."""
    graph = compile_model(zoo_path(READER), plain="operators").model.graph
    costs = board_costs(graph, board_devices())
    rows: list[Row] = []
    known: dict[tuple[bool, ...], Row] = {}
    for scheme, title in PUBLISHED.items():
        found = scheme_plan(scheme, costs)
        assert found is not None  # the CPU runs all
        there = tuple(place == 1 for place in found.assignment)
        known[there] = known.get(there) or read_row(there, lines)
        rows.append({"scheme": title, **known[there]})
    return rows


def _closeness(its: Planned, frames: int) -> dict[str, float]:
    npu = 1
    sides = sides_of_file(str(its.case), its.case.path, lambda _: [place == npu for place in its.found.assignment])
    generator = np.random.default_rng(_SEED)
    shape = sides.graph.inputs[0].shape
    return closeness([sides.answers(generator.standard_normal(shape, np.float32)) for _ in range(frames)])
