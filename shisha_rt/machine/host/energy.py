"""Energy that this host draws, by the kernel's counters (powercap: RAPL on x86), if this process may read them.

The counters are of whole packages, with all programs and idle time: the host's energy, not a plan's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_POWERCAP: Final = Path("/sys/class/powercap")
_WHOLE: Final = re.compile(r"[^:]+-rapl:\d+")
"""Zones of whole packages. Zones within them, and other views of the same package (mmio), would count twice."""


class EnergyCounters:
    """`joules`: by package, since construction. `fault`: why counters are missing, in words; empty if none is."""

    def __init__(self, folder: Path = _POWERCAP) -> None:
        self.joules: dict[str, float] = {}
        self.fault = ""
        self._zones: dict[str, tuple[Path, int]] = {}
        self._last_uj: dict[str, int] = {}
        zones = sorted(zone for zone in folder.glob("*") if _WHOLE.fullmatch(zone.name)) if folder.is_dir() else []
        if not zones:
            self.fault = f"{folder} has no counters of packages"
        for zone in zones:
            try:
                name, range_uj = (zone / "name").read_text().strip(), int((zone / "max_energy_range_uj").read_text())
                self._last_uj[name] = int((zone / "energy_uj").read_text())
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no number"
                self.fault = f"{zone / 'energy_uj'} cannot be read: {why}"
                continue
            self._zones[name], self.joules[name] = (zone / "energy_uj", range_uj), 0.0

    def look(self) -> Mapping[str, float]:
        """Read the counters, which wrap around at their range. A counter that cannot be read now adds nothing."""
        for name, (path, range_uj) in self._zones.items():
            try:
                now_uj = int(path.read_text())
            except (OSError, ValueError):
                continue
            before_uj = self._last_uj[name]
            self.joules[name] += (now_uj - before_uj + (range_uj if now_uj < before_uj else 0)) / 1e6
            self._last_uj[name] = now_uj
        return self.joules
