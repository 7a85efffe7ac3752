"""How many times slower each device is than known costs say, from times of live segments. Pure: times are passed in.

A device is off if the times of its segments together differ from the prediction by more than prediction errors explain
(`OFF`). One observation proves nothing: on a shared host a window may be spoilt by a process that ran for a moment, and
a new placement costs an epoch. A lasting difference shows in the next window, too. So a device's ratio is corrected
when two observations in a row say that it is off, and agree with each other. Differences within the noise are ignored,
even if they add up to a few percent over many devices: following them would never end.

Devices that were not observed are assumed to have drifted as the observed ones of their place did: the host may be
slower as a whole.

A device that is no longer used because it was slow cannot show that it has recovered. So after some time it counts as
never observed, and may be chosen again. Each time that it is slow again, the time doubles.

A prediction includes transfers, some of which do not scale with ratios (those between devices of one memory and other
devices). So one correction may not be enough; further ones converge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Final

OFF: Final = 0.15
"""A device is off if measured time exceeds predicted time, or falls short of it, by more than this fraction."""

AGREEING: Final = 0.10
"""Two observations agree if the larger over the smaller exceeds 1 by no more than this."""

AS_KNOWN: Final = 0.05
"""A corrected ratio that differs from 1 by no more than this is set to 1."""

CHANCE_S: Final = 60.0
MOST_CHANCE_S: Final = 3600.0
"""How long a slow device is not used: the first time, and at most."""

LEAST_S: Final = 50e-6
"""A device whose segments are predicted to take less than this together is not judged."""

HOST_DRIFT: Final = 1.35
"""Largest factor by which a whole host is assumed to be slower or faster than when it was profiled."""


class DeviceRatios:
    """Ratios of measured to known times, for the devices of one daemon.

    `ratios`: (place, device) -> ratio; 1 for an absent pair. The mapping is replaced, never changed in place.
    """

    def __init__(self) -> None:
        self.ratios: Mapping[tuple[str, str], float] = {}
        self._off: dict[tuple[str, str], float] = {}  # last observation of devices that are off, until confirmed
        self._seen_s: dict[tuple[str, str], float] = {}  # when the device was last judged
        self._patience_s: dict[tuple[str, str], float] = {}  # time to the next chance, if there was one before

    def __str__(self) -> str:
        ratios = (f"{device} on {place} x{ratio:.3g}" for (place, device), ratio in self.ratios.items())
        return ", ".join(ratios) or "as at first again"

    def observe(
        self,
        place: str,
        devices: Sequence[str],
        predicted_s: Sequence[float],
        measured_s: Sequence[float],
        now_s: float,
    ) -> bool:
        """Note times of the segments of one live stage; return whether a ratio changed.

        Each is (segments,): the device, the prediction under the present ratios, and the median over a window of frames
        that no earlier observation included. Raises ValueError if they differ in length.
        """
        sums_s: dict[str, tuple[float, float]] = {}
        for device, predicted, measured in zip(devices, predicted_s, measured_s, strict=True):
            before = sums_s.get(device, (0.0, 0.0))
            sums_s[device] = before[0] + predicted, before[1] + measured
        ratios = dict(self.ratios)
        for device, (predicted, measured) in sums_s.items():
            key = place, device
            if predicted < LEAST_S or measured <= 0:
                continue
            self._seen_s[key] = now_s
            ratio = ratios.get(key, 1.0) * measured / predicted
            if ratio <= 1 + OFF:
                self._patience_s.pop(key, None)
            if not self._confirmed(key, measured / predicted):
                continue
            ratios.pop(key, None)
            if _apart(ratio, 1.0) > AS_KNOWN:
                ratios[key] = ratio
        changed = ratios != self.ratios
        self.ratios = ratios
        return changed

    def assume(self, place: str, devices: Iterable[str]) -> None:
        """Set the ratios of a place's unobserved devices to the geometric mean of the observed ones', within limits.

        A host that is slower than when it was profiled is slower for all devices. Otherwise devices not in use would
        seem to have become the better ones.
        """
        keys = [(place, device) for device in devices]
        seen = [self.ratios.get(key, 1.0) for key in keys if key in self._seen_s]
        if not seen:
            return
        common = min(max(geometric_mean(seen), 1 / HOST_DRIFT), HOST_DRIFT)
        idle = [key for key in keys if key not in self._seen_s]
        ratios = {key: ratio for key, ratio in self.ratios.items() if key not in idle}
        if _apart(common, 1.0) > AS_KNOWN:
            ratios |= dict.fromkeys(idle, common)
        self.ratios = ratios

    def give_chances(self, place: str, devices: Iterable[str], now_s: float) -> list[str]:
        """Forget slow devices of a place whose time without use is over (`CHANCE_S`), so that they may be chosen again.

        Returns the forgotten devices. Their ratios are removed; `assume` sets new ones.
        """
        given = []
        for device in devices:
            key = place, device
            patience_s = self._patience_s.get(key, CHANCE_S)
            if self.ratios.get(key, 1.0) <= 1 or now_s - self._seen_s.get(key, now_s) < patience_s:
                continue
            given.append(device)
            del self._seen_s[key]
            self._off.pop(key, None)
            self._patience_s[key] = min(2 * patience_s, MOST_CHANCE_S)
            self.ratios = {other: ratio for other, ratio in self.ratios.items() if other != key}
        return given

    def _confirmed(self, key: tuple[str, str], ratio: float) -> bool:
        """Whether a device is off, and was off by about as much when it was last observed."""
        before = self._off.pop(key, None)
        if _apart(ratio, 1.0) <= OFF:
            return False
        if before is not None and _apart(ratio, before) <= AGREEING:
            return True
        self._off[key] = ratio
        return False


def _apart(a: float, b: float) -> float:
    """Difference of two positive numbers, relative to the smaller."""
    return max(a, b) / min(a, b) - 1
