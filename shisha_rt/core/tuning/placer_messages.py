"""Messages between the daemon and its placer's process. A request asks to place the operators of a plan's stages.

Costs are sent before, one message for each device of each place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from typing import Final, TypeAlias

import msgspec
import numpy as np

from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.plan.plan import Plan
from shisha_rt.process.codec import Codec


class DeviceCosts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`time_s` is (operators,) seconds on one device of a place; inf for an operator that it cannot run alone.

    `groups`: operators that it runs as one, and the seconds of each group.
    """

    place: str
    device: Device
    time_s: tuple[float, ...]
    groups: tuple[tuple[tuple[int, ...], float], ...] = ()


class Known(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The costs of all devices have been sent. `model_folder` has the cleaned network, `engine_folder` its index.

    `solver`: "exact" or "als".
    """

    model_folder: str
    engine_folder: str
    solver: str


class Solve(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Place the operators of each stage. `ratios`: (place, device, factor by which it is slower than known)."""

    request: int
    plan: Plan
    ratios: tuple[tuple[str, str, float], ...] = ()


ToPlacer: TypeAlias = DeviceCosts | Known | Solve


class StageSolved(msgspec.Struct, frozen=True, array_like=True):
    """A `StagePlacement` as a message: the device of each operator, and seconds of each segment and of the stage.

    `breaks`: indices of the operators at which another run of layers, and so another segment, begins.
    """

    devices: tuple[str, ...]
    cost_s: float
    segments_s: tuple[float, ...]
    lower_bound_s: float | None
    outcome: str
    breaks: tuple[int, ...] = ()

    @property
    def segments(self) -> list[tuple[str, int]]:
        """(segments,): the device of each, and how many operators it has."""
        starts = [0, *self.breaks, len(self.devices)]
        runs = (self.devices[start:end] for start, end in pairwise(starts))
        return [(device, len(list(same))) for run in runs for device, same in groupby(run)]


class Solved(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Placements of all stages. `solve_s`: how long solving took; almost 0 if the solution was cached."""

    request: int
    stages: tuple[StageSolved, ...]
    solve_s: float


class NotSolved(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage cannot be placed; `reason` is one line."""

    request: int
    reason: str


FromPlacer: TypeAlias = Solved | NotSolved

TO_PLACER: Final[Codec[ToPlacer]] = Codec(ToPlacer)
FROM_PLACER: Final[Codec[FromPlacer]] = Codec(FromPlacer)


def greeting(
    model_folder: str, engine_folder: str, solver: str, costs: Mapping[str, OperatorCosts]
) -> tuple[ToPlacer, ...]:
    """Messages that a placer needs before its first request; `costs` are by place, or team (`plan.team_name`)."""
    columns = (
        DeviceCosts(
            place,
            device,
            tuple(cost.time_s[:, column].tolist()),
            tuple((group.operators, group.time_s) for group in cost.groups if group.device == column),
        )
        for place, cost in costs.items()
        for column, device in enumerate(cost.devices)
    )
    return (*columns, Known(model_folder, engine_folder, solver))


def costs_of(columns: Iterable[DeviceCosts]) -> Mapping[str, OperatorCosts]:
    """The costs from which a greeting was made."""
    by_place: dict[str, list[DeviceCosts]] = {}
    for column in columns:
        by_place.setdefault(column.place, []).append(column)
    return {
        place: OperatorCosts(
            tuple(c.device for c in ratios_there),
            np.array([c.time_s for c in ratios_there]).T,
            tuple(
                GroupCost(operators, device, time_s)
                for device, column in enumerate(ratios_there)
                for operators, time_s in column.groups
            ),
        )
        for place, ratios_there in by_place.items()
    }
