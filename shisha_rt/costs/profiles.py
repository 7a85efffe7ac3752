"""The two records of the profile store: what was measured (`Profile`), and under which conditions (`Setting`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DISTURBED: Final = 0.1
"""Share of the cores' time above which other processes count as a disturbance. A calm virtual machine has a few percent
of stolen time and system work; a program that keeps one of two cores busy takes half.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """All that a measured time depends on, besides the layers.

    `engine` is the device's name in the store. `core_kind` tells apart the kinds of cores of one processor
    (big.LITTLE); it is empty where there is only one. `processor` names the model and its instruction sets.
    `neighbours`: how many other cores were busy during the measurement.
    """

    engine: str
    engine_version: str
    threads: int
    core_kind: str
    processor: str
    neighbours: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A measured run of layers on unthrottled cores: raw, before speed, bandwidth and time scale.

    `cpu_s` is CPU seconds of all threads and `wall_s` seconds by the clock, both medians over `runs`; `spread_s`: the
    interquartile range of `cpu_s`. `moved_bytes`: weights, inputs and outputs, each once. `others_ratio`: share of the
    cores that other processes took (0 if not observed).
    """

    cpu_s: float
    wall_s: float
    spread_s: float
    runs: int
    moved_bytes: int
    others_ratio: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether the profile should be measured again once the host is calm."""
        return self.others_ratio > DISTURBED
