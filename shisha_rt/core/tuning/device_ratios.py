"""How many times as slow as known each device really is, from what live segments take. Pure: times are passed in.

A device is off when its segments together take other than was predicted, by more than any prediction may be wrong
for. One observation proves nothing: on a shared host a window may be spoilt by a process that ran for a moment, and
placing anew costs an epoch. What lasts is still there in the next window, and by as much. So a device's ratio is
corrected when two observations of it in a row say that it is off, and agree with each other. What is within the
noise is left alone, also when it adds up to a few percent on many devices: chasing it would replan for ever.

What is seen of devices at work also says what is to be assumed of those beside them: the host may have drifted.

A device that is no longer used because it was slow cannot show that it has recovered. So after a while it is taken for
one that was never seen, and may be chosen again. Each time that it proves to be slow still, the while doubles.

A prediction holds transfers too, some of which ratios do not stretch (those between devices of one memory and the
rest). So one correction may fall short of the truth; the next ones close in on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Final

OFF: Final = 0.15
"""Measured over predicted, or the reverse, is beyond 1 by more than this: the device is off."""

AGREEING: Final = 0.10
"""Two observations are apart by no more than this, the larger over the smaller: they say the same."""

AS_KNOWN: Final = 0.05
"""A corrected ratio so near to 1 is 1 again."""

CHANCE_S: Final = 60.0
MOST_CHANCE_S: Final = 3600.0
"""How long a device that was slow is left alone: the first time, and at most."""

LEAST_S: Final = 50e-6
"""Segments of one device that are predicted to take less than this together are too short to be judged."""

HOST_DRIFT: Final = 1.35
"""By how much a host may be slower or faster than when it was profiled, with nothing wrong with a device."""


class DeviceRatios:
    """Measured over known times of the devices of one daemon.

    `ratios`: (place, device) -> ratio; an absent pair takes what is known.

    `ratios` is replaced, never changed: who keeps one has it as it was.
    """

    def __init__(self) -> None:
        self.ratios: Mapping[tuple[str, str], float] = {}
        self._off: dict[tuple[str, str], float] = {}  # what the last observation said, where it was not acted upon
        self._seen_s: dict[tuple[str, str], float] = {}  # when it was last judged
        self._patience_s: dict[tuple[str, str], float] = {}  # of those that have had a chance, and failed

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
        """What the segments of one live stage took; returns whether a ratio changed.

        All are (segments,): each one's device, its prediction under the present ratios, and its median over a window
        that no earlier observation saw. Raises ValueError if they differ in length.
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
        """Give devices of a place that have not been seen at work the ratio that those have which were, within limits.

        A host that is slower than when it was profiled is slower for all. Without this, the devices not in use would
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
        """Those of a place's idle devices that have been slow, and left alone for long enough: they are as never seen.

        What is to be assumed of them then is for `assume`.
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
        """Whether a device is off, and was so by as much when it was last observed."""
        before = self._off.pop(key, None)
        if _apart(ratio, 1.0) <= OFF:
            return False
        if before is not None and _apart(ratio, before) <= AGREEING:
            return True
        self._off[key] = ratio
        return False


def _apart(a: float, b: float) -> float:
    """How far the larger is above the smaller, relative to the smaller."""
    return max(a, b) / min(a, b) - 1
