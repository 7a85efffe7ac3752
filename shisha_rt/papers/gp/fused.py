"""The best fused split of a whole chain: which layers are whole, split, paired or tiled, and with which shares.

A point is (layers done, memory that has the data). Each step (a layer, a pair, a run of tiles up to a bound) is an edge
between two points, with the best shares by the exact integer split; the shortest path is the best plan. Limits for all
layers together are budgets of the path: then a step has an option for each combination of shares of the devices with
such limits, and the answer is proven, or comes with a bound (see `shortest_path`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.chain import Mode, Step, resources_of, runs_from, step_cost
from shisha_rt.papers.gp.problem import ROUNDING, SplitProblem, runs, too_little_room
from shisha_rt.papers.gp.shared import SharedOptions, SharedRun, network_limits, shared_run, split_layer
from shisha_rt.papers.gp.shortest_path import BudgetedGraph, Stretch, least_way


@dataclass(frozen=True, slots=True)
class NetworkSplit:
    """`steps`: from the first layer to the last; None: no split was found. `value`: seconds or joules.

    `lower_bound`: proven for all plans of the kinds of steps considered.
    """

    steps: tuple[Step, ...] | None
    outcome: Outcome
    value: float = math.inf
    lower_bound: float | None = None
    reason: str | None = None


def fused_split(problem: SplitProblem) -> NetworkSplit:
    """Return the best plan, proven unless `outcome` is FEASIBLE (see `reason`)."""
    steps = _Steps(problem)
    for index in range(len(problem.layers)):
        steps.add_from(index)
    return steps.least()


def split_network(problem: SplitProblem, runs: Sequence[SharedRun] | None = None) -> NetworkSplit:
    """As `fused_split`, but with every layer split alone, and all communication paid, as in Eq. 10.

    `runs`: cost tables of the layers, in place of those that follow from the problem.
    """
    steps = _Steps(problem)
    for index in range(len(problem.layers)):
        steps.add_shared("split", index, index, run=None if runs is None else runs[index])
    return steps.least()


class _Steps:
    """All steps as edges between points (layers done, memory with the data); the host's memory comes last of each."""

    def __init__(self, problem: SplitProblem) -> None:
        self._problem, self._limits = problem, network_limits(problem)
        self._own = [d for d, device in enumerate(problem.devices) if device.legs is not None]
        self._points = 1 + len(problem.layers) * (len(self._own) + 1)
        self._found: list[tuple[Stretch, Step, SharedOptions | None]] = []  # None: a step has the shares that it states

    def least(self) -> NetworkSplit:
        ordered = sorted(self._found, key=lambda entry: entry[0].source)
        stretches = [stretch for stretch, _, _ in ordered]
        graph = BudgetedGraph(stretches, self._points, np.array([limit.limit for limit in self._limits]))
        way = least_way(graph)
        if way.picks is None:
            why = self._why(graph, way.outcome)
            return NetworkSplit(None, way.outcome, lower_bound=way.lower_bound, reason=why)
        steps = tuple(_with_shares(*ordered[stretch][1:], option) for stretch, option in way.picks)
        reason = None if way.outcome is Outcome.OPTIMAL else "too many ways to keep to the limits for all layers"
        return NetworkSplit(steps, way.outcome, graph.cost_of(way.picks), way.lower_bound, reason)

    def _why(self, graph: BudgetedGraph, outcome: Outcome) -> str:
        """Name the limit that cannot be kept: of a layer that fits nowhere, else of all layers together."""
        if outcome is Outcome.LIMIT:
            return "too many ways to keep to the limits for all layers, and none of those tried does"
        problem = self._problem
        for layer in problem.layers:
            if split_layer(problem, layer) is None:
                return too_little_room(problem, layer, [{}] * len(problem.devices))
        for b, limit in enumerate(self._limits):
            least = graph.least_taken(b)
            if least > limit.limit:
                name = problem.devices[limit.device].name
                return f"{name}: all layers would need {least:.6g} {limit.name} at least, it has {limit.limit:.6g}"
        names = ", ".join(f"{limit.name} of {problem.devices[limit.device].name}" for limit in self._limits)
        return f"the limits of {names} for all layers cannot be kept together"

    def add_from(self, first: int) -> None:
        """Add all steps that begin with layer `first`, with fetching of whole outputs."""
        sources = [None] if first in (0, *self._problem.starts) else [None, *self._own]
        self._add_whole(first, sources)
        for mode, last in runs_from(self._problem, first):
            for at in sources if self._problem.links else [None]:
                self.add_shared(mode, first, last, at=at)

    def _point(self, done: int, device: int | None) -> int:
        if not done:
            return 0
        at = len(self._own) if device is None else self._own.index(device)
        return 1 + (done - 1) * (len(self._own) + 1) + at

    def _add_whole(self, index: int, sources: Sequence[int | None]) -> None:
        """Add the layer whole on each device that has room, from each memory, and the fetching of its output."""
        problem = self._problem
        layer = problem.layers[index]
        for d, device in enumerate(problem.devices):
            taken = resources_of(device, layer, layer.units)
            if not runs(device, layer, layer.units) or any(
                amount > device.limits[name] * (1 + ROUNDING) for name, amount in taken.items()
            ):
                continue
            shares = tuple(layer.units if d == other else 0 for other in range(len(problem.devices)))
            used = [taken[limit.name] if limit.device == d else 0.0 for limit in self._limits]
            step, own = Step("whole", index, index, shares), d in self._own
            target = self._point(index + 1, d if own else None)
            for at in sources:
                if self._problem.entry(at, d) is not None:
                    self._add(step, self._point(index, at), target, used, at)
            if own:
                fetched = Step("fetched", index + 1, index, shares)
                self._add(fetched, target, self._point(index + 1, None), [0.0] * len(used), d)

    def _add(self, step: Step, source: int, target: int, used: Sequence[float], at: int | None) -> None:
        value = step_cost(self._problem, step, at=at).value
        stretch = Stretch(source, target, np.array([value]), np.array([used]).reshape(1, len(used)))
        self._found.append((stretch, step, None))

    def add_shared(
        self, mode: Mode, first: int, last: int, *, run: SharedRun | None = None, at: int | None = None
    ) -> None:
        options = (run or shared_run(self._problem, mode, first, last, at)).options()
        if options is not None:
            stretch = Stretch(self._point(first, at), self._point(last + 1, None), options.costs, options.taken)
            self._found.append((stretch, Step(mode, first, last, ()), options))


def _with_shares(step: Step, options: SharedOptions | None, option: int) -> Step:
    return step if options is None else replace(step, shares=options.shares(option))
