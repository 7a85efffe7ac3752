"""The exact best split of a single layer of a problem (see `planner/shards/integer.py`)."""

from __future__ import annotations

from shisha_rt.papers.gp.problem import SplitLayer, SplitProblem
from shisha_rt.papers.gp.tables import layer_tables
from shisha_rt.planner.shards.integer import BlockShares, best_blocks
from shisha_rt.planner.strategies import Execution


def execution_of(problem: SplitProblem) -> Execution:
    """How costs of devices add up: energy is a sum even if devices compute in parallel."""
    return "sequence" if problem.objective == "energy" else problem.execution


def split_layer(problem: SplitProblem, layer: SplitLayer) -> tuple[tuple[int, ...], BlockShares] | None:
    """The best shares of one layer (devices,), in units, and the same in blocks. None: no shares fit."""
    tables = layer_tables(problem, layer)
    blocks = best_blocks(tables.whole, execution_of(problem), tables.odd)
    return None if blocks is None else (blocks.units(layer.block, layer.units), blocks)
