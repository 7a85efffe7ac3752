"""The energy of a frame: watts of the places that compute it, times the seconds that they are busy with it.

As in GP (2023, Eq. 15) energy is power times time. A place's power is what it draws while it computes, beyond what it
draws idle: so idle places cost nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import TeamSeconds, team_shares

NO_POWER: Final[Mapping[str, float]] = MappingProxyType({})
"""For places whose power is not known."""


def frame_joules(plan: Plan, service_s: TeamSeconds, power_w: Mapping[str, float]) -> float:
    """Joules of a frame whose stages take `service_s`; inf if one cannot run, or if a place's power is not known.

    All places of a team draw their power until the team is done. If a stage has several teams, each computes its share
    of the frames at saturation; a team that cannot run the stage computes none.
    """
    if not all(place in power_w for place in plan.places):
        return math.inf
    joules = 0.0
    for stage, times_s in zip(plan.stages, service_s, strict=True):
        if not any(map(math.isfinite, times_s)):
            return math.inf
        for team, seconds, share in zip(stage.teams, times_s, team_shares(times_s), strict=True):
            if share:
                joules += share * seconds * math.fsum(power_w[place] for place in team)
    return joules
