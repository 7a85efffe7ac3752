"""What was measured, and under which conditions: the two records that the profile store keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DISTURBED: Final = 0.1
"""Of the cores. A calm virtual machine has some percent of stolen time and of its system's own work; a program that
keeps one of two cores busy has half."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a time depends on besides the layers themselves.

    `engine` is the device's name in the store. `core_kind` tells apart the kinds of cores of one processor
    (big.LITTLE); it is empty where there is only one. `processor` names the model and its instruction sets.
    `neighbours`: how many other cores were busy meanwhile.
    """

    engine: str
    engine_version: str
    threads: int
    core_kind: str
    processor: str
    neighbours: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A run of layers on unthrottled cores: raw, before speed, bandwidth and time scale.

    `cpu_s` is CPU seconds of all threads and `wall_s` seconds by the clock, both medians over `runs`; `spread_s`
    the interquartile range of the former. `moved_bytes` are weights, inputs and outputs, once. `others_ratio`: the part
    of the cores that others took meanwhile (0 where nobody looked).
    """

    cpu_s: float
    wall_s: float
    spread_s: float
    runs: int
    moved_bytes: int
    others_ratio: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether it is to be measured again once the host is calm."""
        return self.others_ratio > DISTURBED
