"""The exact best split of a single layer of a problem (see `planner/shards/integer.py`)."""

from __future__ import annotations

from dataclasses import replace

from shisha_rt.papers.gp.chain import unfused
from shisha_rt.papers.gp.problem import SplitLayer, SplitProblem
from shisha_rt.papers.gp.shared import shared_run
from shisha_rt.planner.shards.integer import BlockShares


def split_layer(problem: SplitProblem, layer: SplitLayer) -> tuple[tuple[int, ...], BlockShares] | None:
    """The best shares of one layer (devices,), in units, and the same in blocks, communication in full; a limit for all
    layers together is applied to this layer alone. None: no shares fit.
    """
    blocks = shared_run(unfused(replace(problem, layers=(layer,))), "split", 0, 0).best()
    return None if blocks is None else (blocks.units(layer.block, layer.units), blocks)
