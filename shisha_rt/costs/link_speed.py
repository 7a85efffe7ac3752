"""How fast a link is, and when it has become another one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

_ANOTHER: Final = 2.0  # so that a neighbour who sends all the time is none
_ANOTHER_S: Final = 2e-3  # for a small message there and back, or for `_BULK_BYTES` besides
_BULK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OneWay:
    """One direction of a link: a part's tensors take `latency_s` together and their bytes over `bytes_per_s`."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, size_bytes: float) -> float:
        """Of all that a part sends this way; nothing takes no time."""
        return self.latency_s + size_bytes / self.bytes_per_s if size_bytes else 0.0


class LinkSpeed(NamedTuple):
    """Both ways; a link that has not been measured has none."""

    there: OneWay
    back: OneWay

    @property
    def fields(self) -> dict[str, float]:
        """As events and `status` have it."""
        return {
            f"{name}_{what}": value
            for name, way in zip(self._fields, self, strict=True)
            for what, value in (("latency_s", way.latency_s), ("bytes_per_s", way.bytes_per_s))
        }

    def takes_s(self, there_bytes: int, back_bytes: int) -> float:
        """Both ways, one after the other; a message without bytes travels, too."""
        bulk_s = there_bytes / self.there.bytes_per_s + back_bytes / self.back.bytes_per_s
        return self.there.latency_s + self.back.latency_s + bulk_s

    def is_unlike(self, other: LinkSpeed) -> bool:
        """Whether a small message, or a large one either way, takes twice as long as before, or half."""
        ways = (0, 0), (_BULK_BYTES, 0), (0, _BULK_BYTES)
        return any(differ(self.takes_s(*way), other.takes_s(*way)) for way in ways)


def differ(one_s: float, other_s: float) -> bool:
    """Whether what takes these times over a link went over two that are not alike."""
    return max(one_s, other_s) > _ANOTHER * min(one_s, other_s) and abs(one_s - other_s) > _ANOTHER_S
