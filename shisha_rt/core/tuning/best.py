"""The best plans known of one model, for each machine that it has run on and each objective.

`key_of` tells machines apart by their properties, not by their names. What is kept on disk is a copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from shisha_rt.machine.machine import Machine
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

_VERSION: Final = 3

PLAIN: Final = "throughput, plain chains"
"""The default aim. An aim says what plans are chosen for, and among which."""


@dataclass(frozen=True, slots=True)
class BestPlan:
    """A plan, its measurement, and the order of places in which the search walked, unused ones included.

    `others_ratio`: the share of the cores that other programs used while the plan was searched for or compared.
    """

    plan: Plan
    measurement: Measurement
    order: tuple[str, ...]
    others_ratio: float = 0.0


class BestPlans:
    """The best plans known, by machine and aim; `kept`: those read from disk."""

    def __init__(self, kept: Mapping[str, BestPlan]) -> None:
        self._by_key = dict(kept)

    def of(self, machine: Machine, aim: str = PLAIN) -> BestPlan | None:
        return self._by_key.get(key_of(machine, aim))

    def replace(self, machine: Machine, best: BestPlan, aim: str = PLAIN) -> str:
        key = key_of(machine, aim)
        self._by_key[key] = best
        return key


def key_of(machine: Machine, aim: str = PLAIN) -> str:
    """Key of a machine and an aim, without power of places: it changes no times, and aims that need it contain it."""
    places = [
        {key: said for key, said in msgspec.to_builtins(place).items() if key != "power_w"} for place in machine.places
    ]
    said = msgspec.json.encode((_VERSION, machine.memories, places, machine.timing, machine.time_scale, aim))
    return hashlib.sha256(said).hexdigest()[:16]
