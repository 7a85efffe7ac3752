"""Messages between the daemon and its placer's process. A request asks to place the operators of a plan's stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
import numpy as np

from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.plan.plan import Plan
from shisha_rt.process.codec import Codec


class PlaceCosts(msgspec.Struct, frozen=True, array_like=True):
    """An `OperatorCosts` as a message: `time_s` is (operators, devices)."""

    devices: tuple[Device, ...]
    time_s: list[list[float]]
    groups: tuple[GroupCost, ...]


class Known(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first message. `model_folder` has the cleaned network, `engine_folder` its index. `solver`: "exact" or "als".

    `place_costs`: by place, or team (`plan.team_name`). `paces`: whether stages are paced by these costs.
    """

    model_folder: str
    engine_folder: str
    solver: str
    place_costs: dict[str, PlaceCosts]
    paces: bool = False

    @property
    def costs(self) -> dict[str, OperatorCosts]:
        costs = self.place_costs.items()
        return {place: OperatorCosts(of.devices, np.array(of.time_s), of.groups) for place, of in costs}


class Solve(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Place the operators of each stage. `ratios`: (place, device, factor by which it is slower than known)."""

    request: int
    plan: Plan
    ratios: tuple[tuple[str, str, float], ...] = ()


ToPlacer: TypeAlias = Known | Solve


class Solved(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Placements of all stages. `solve_s`: almost 0 if cached. `paced_s`: (stages, teams), as in `plan.Stage`."""

    request: int
    stages: tuple[StagePlacement, ...]
    solve_s: float
    paced_s: tuple[tuple[float, ...], ...] = ()


class NotSolved(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A stage cannot be placed; `reason` is one line."""

    request: int
    reason: str


FromPlacer: TypeAlias = Solved | NotSolved

TO_PLACER: Final[Codec[ToPlacer]] = Codec(ToPlacer)
FROM_PLACER: Final[Codec[FromPlacer]] = Codec(FromPlacer)


def greeting(
    model_folder: str, engine_folder: str, solver: str, costs: Mapping[str, OperatorCosts], *, paces: bool = False
) -> tuple[ToPlacer]:
    """What a placer needs before its first request; `costs` are by place, or team (`plan.team_name`)."""
    by_place = {place: PlaceCosts(of.devices, of.time_s.tolist(), of.groups) for place, of in costs.items()}
    return (Known(model_folder, engine_folder, solver, by_place, paces),)
