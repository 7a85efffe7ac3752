"""The energy used by processor packages, by their own counters (RAPL), with everything that runs on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POWERCAP: Final = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """The counter of a processor package; after `wraps_at_j` it begins at 0 again."""

    used_j: float
    wraps_at_j: float


def energy_counters(powercap: Path = _POWERCAP) -> Mapping[str, EnergyCounter]:
    """The counters by package; {} if there are none that may be read."""
    counters = {}
    for zone in sorted(powercap.glob("intel-rapl:*")):
        if _text(zone / "name").startswith("package"):
            used_uj, wraps_at_uj = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
            if used_uj is not None and wraps_at_uj:
                counters[zone.name] = EnergyCounter(1e-6 * used_uj, 1e-6 * wraps_at_uj)
    return counters


def joules_between(before: Mapping[str, EnergyCounter], after: Mapping[str, EnergyCounter]) -> float:
    """Energy of all packages between two readings, less than one round of a counter apart."""
    return math.fsum((later.used_j - before[zone].used_j) % later.wraps_at_j for zone, later in after.items())


def _number(path: Path) -> float | None:
    text = _text(path).strip()
    return float(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
