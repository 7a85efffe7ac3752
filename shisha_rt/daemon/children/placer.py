"""`python -m shisha_rt.daemon.children.placer CHANNEL PARENT`: the process that solves placements; the loop never does.

Requests are answered in order, each once. Consecutive trial plans share most stages, and plans recur: so solved stages
are kept.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, cast

from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.costs.alike import first_alike
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Graph
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.reader.index_file import read_index
from shisha_rt.model.reader.onnx_reader import read_clean
from shisha_rt.model.shards.shard_graphs import operators_behind, operators_within
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.outcome import Outcome
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import Segment, segments
from shisha_rt.placement.shard_costs import split_stage_s
from shisha_rt.placement.solver_names import StageSolver
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.placement.stage_problem import place_stage
from shisha_rt.plan.plan import Stage, Team, team_name
from shisha_rt.process.parent import line_to_parent

KEPT_STAGES: Final = 1024
"""Solved stages that are kept; the least recently used are dropped first. A bound is needed as ratios keep changing."""

Ratios = tuple[tuple[str, float], ...]
"""(device, time relative to its known costs) for devices of one place, sorted."""


class Placer:
    """Places the operators of stages on the devices of places and teams. `costs`: by the name of a place or team.

    A team's costs hold for all teams of as many like places. `paces`: whether stages are paced by them.
    """

    def __init__(
        self,
        graph: Graph,
        index: ModelIndex,
        solver: StageSolver,
        costs: Mapping[str, OperatorCosts],
        *,
        paces: bool = False,
    ) -> None:
        self._graph = graph
        self._index = index
        self._solver = solver
        self._costs = costs
        self._paces = paces
        self._first_alike = first_alike({name: cost for name, cost in costs.items() if "+" not in name})
        self._known = {_kind(name, self._first_alike): name for name in reversed(list(costs))}
        self._kept = lru_cache(KEPT_STAGES)(self._solve_stage)

    def answer(self, asked: pm.Solve) -> pm.FromPlacer:
        started_s = time.perf_counter()
        try:
            stages = tuple(
                self._stage(stage, _of_team(team_name(stage.teams[0]), asked.ratios)) for stage in asked.plan.stages
            )
            pairs = zip(asked.plan.stages, stages, strict=True)
            paced_s = tuple(self._paced_s(stage, placed) for stage, placed in pairs) if self._paces else ()
        except BadInput as error:
            return pm.NotSolved(asked.request, str(error))
        return pm.Solved(asked.request, stages, time.perf_counter() - started_s, paced_s)

    def _known_of(self, team: Team) -> str:
        """Name of the place or team whose costs hold for a team. Raises BadInput if nothing is known of it."""
        known = self._known.get((self._first_alike[team[0]], len(team)))
        if known is None:
            raise BadInput(
                f"team {team_name(team)}: nothing is known of what operators cost on {len(team)} places",
                Error.COSTS_MISSING,
            )
        return known

    def _paced_s(self, stage: Stage, placed: StagePlacement) -> tuple[float, ...]:
        """(teams,) seconds of a placed stage, whatever devices take now."""
        costs_of = map(self._known_of, stage.teams)
        if stage.split is not None:
            return tuple(self._split_stage(stage.split, stage.work, known, ()).cost_s for known in costs_of)
        parts = self._segments(stage.work, placed.devices)
        return tuple(math.fsum(segment_times_s(self._graph, parts, self._costs[known])) for known in costs_of)

    def _segments(self, work: Sequence[Span], devices: Sequence[str]) -> list[Segment]:
        """Segments of a placed stage; none spans two runs of layers."""
        runs, left = [self._index.operators_of(*span) for span in work], iter(devices)
        return [
            part for first, last in runs for part in segments(self._graph, first, list(islice(left, last - first + 1)))
        ]

    def _stage(self, stage: Stage, ratios: Ratios) -> StagePlacement:
        work, known = stage.work, self._known_of(stage.teams[0])
        if stage.split is not None:
            return self._split_stage(stage.split, work, known, ratios)
        runs = [self._kept(first, last, known, ratios) for first, last in work]
        return runs[0] if len(runs) == 1 else self._in_sequence(work, runs, self._costs[known].slowed(dict(ratios)))

    def _split_stage(self, split: Split, work: Sequence[Span], known: str, ratios: Ratios) -> StagePlacement:
        """Price a stage with a split on the only device of its place.

        On a measured device a shard takes its share of the layers' measured time.
        """
        (device,), slower = self._costs[known].devices, dict(ratios)
        layers = self._index.node_layers
        try:
            seconds = split_stage_s(self._graph, layers, split, work, device)
        except ValueError as error:
            raise BadInput(
                f"layers {split.span[0]}-{split.span[1]} cannot be split: {error}", Error.PLAN_UNFIT
            ) from None
        if seconds is None:
            taken_s = self._costs[known].time_s[:, 0]
            shared = operators_within(layers, [split.span])
            behind = operators_behind(layers, split, work) if split.joins else []
            seconds = float(taken_s[shared].sum() * split.fraction + taken_s[behind].sum())
        if math.isinf(seconds):
            raise BadInput(
                f"device {device.name} of {known} cannot run {split} of layers {split.span[0]}-{split.span[1]}",
                Error.PLAN_UNFIT,
            )
        seconds *= slower.get(device.name, 1.0)
        count = len(operators_within(layers, work))
        return StagePlacement((device.name,) * count, seconds, (seconds,), seconds, Outcome.OPTIMAL)

    def _in_sequence(
        self, work: Sequence[Span], runs: Sequence[StagePlacement], costs: OperatorCosts
    ) -> StagePlacement:
        """Combine a stage's runs of layers, each placed by itself; transfers between them are priced once."""
        devices = tuple(device for run in runs for device in run.devices)
        segments_s = segment_times_s(self._graph, self._segments(work, devices), costs)
        cost_s = math.fsum(segments_s)
        return StagePlacement(
            devices=devices,
            cost_s=cost_s,
            segments_s=segments_s,
            lower_bound_s=cost_s if len(costs.devices) == 1 else None,
            outcome=Outcome.OPTIMAL if len(costs.devices) == 1 else Outcome.FEASIBLE,
            breaks=tuple(accumulate(len(run.devices) for run in runs[:-1])),
        )

    def _solve_stage(self, first: int, last: int, place: str, ratios: Ratios) -> StagePlacement:
        operators = self._index.operators_of(first, last)
        return place_stage(self._graph, *operators, self._costs[place].slowed(dict(ratios)), self._solver)


def _of_team(name: str, ratios: Iterable[tuple[str, str, float]]) -> Ratios:
    return tuple(sorted((device, ratio) for target, device, ratio in ratios if target == name))


def _kind(name: str, first: Mapping[str, str]) -> tuple[str, int]:
    """The first of the places that are like a team's lead, and the number of the team's places."""
    lead, *others = name.split("+")
    return first[lead], 1 + len(others)


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    placer: Placer | None = None
    while True:
        match pm.TO_PLACER.decode(channel.wait()):
            case pm.Known() as known:
                graph, index = read_clean(Path(known.model_folder)), read_index(Path(known.engine_folder))
                placer = Placer(graph, index, cast(StageSolver, known.solver), known.costs, paces=known.paces)
            case pm.Solve() as asked:
                assert placer is not None  # the greeting is `Known`
                channel.send(pm.FROM_PLACER.encode(placer.answer(asked)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
