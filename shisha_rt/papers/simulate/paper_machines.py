"""Shisha's machines C1 to C6 (2022, Table 2), simulated with the paper's numbers of cores.

From the paper: the numbers of places and of their cores, and that a slow core takes 3 times as long (Figure 9: 3, 6,
12). Ours, as the paper does not state them: the bandwidths, 4 to 1 as in its Knights Landing, the same for all
machines. `configs/machines/c1.toml` to `c6.toml` are the same machines scaled down to two real cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from shisha_rt.machine.machine import Machine, Memory, Place

FAST_BANDWIDTH_BYTES_PER_S: Final = 64e9
SLOW_BANDWIDTH_BYTES_PER_S: Final = FAST_BANDWIDTH_BYTES_PER_S / 4


class Configuration(NamedTuple):
    """A row of Table 2: how many fast and slow places, and the cores of each."""

    fast: int
    fast_cores: int
    slow: int
    slow_cores: int


CONFIGURATIONS: Final[Mapping[str, Configuration]] = MappingProxyType(
    {
        "C1": Configuration(1, 8, 1, 8),
        "C2": Configuration(2, 8, 2, 8),
        "C3": Configuration(4, 4, 2, 8),
        "C4": Configuration(2, 8, 4, 4),
        "C5": Configuration(4, 4, 4, 4),
        "C6": Configuration(8, 4, 0, 0),
    }
)


def paper_machine(name: str, slowdown: float = 3.0) -> Machine:
    """Machine "C1" to "C6" (else KeyError), fast cores of speed 1; `slowdown`: how much longer a slow core takes."""
    config = CONFIGURATIONS[name]
    fast = [_place(f"fast{i}", config.fast_cores, 1.0, 1, "hbm") for i in range(config.fast)]
    slow = [_place(f"slow{i}", config.slow_cores, 1 / slowdown, 2, "ddr") for i in range(config.slow)]
    memories = [Memory("hbm", FAST_BANDWIDTH_BYTES_PER_S)]
    if slow:
        memories.append(Memory("ddr", SLOW_BANDWIDTH_BYTES_PER_S))
    return Machine(f"{name} (simulated)", "Shisha, Table 2", tuple(memories), (*fast, *slow))


def _place(name: str, core_count: int, speed: float, rank: int, memory: str) -> Place:
    return Place(name, (), core_count, core_count, speed, rank, memory)
