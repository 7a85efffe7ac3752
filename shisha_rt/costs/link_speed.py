"""How fast a link is, and when it has become another one. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

_ANOTHER: Final = 2.0  # so that a neighbour who sends all the time is none
_ANOTHER_S: Final = 2e-3  # for a small message there and back, or for `_BULK_BYTES` besides
_BULK_BYTES: Final = 1 << 20


class LinkSpeed(NamedTuple):
    """Both ways; a link that has not been measured has none."""

    there_latency_s: float
    there_bytes_per_s: float
    back_latency_s: float
    back_bytes_per_s: float

    def takes_s(self, there_bytes: int, back_bytes: int) -> float:
        """Both ways, one after the other."""
        there_s = self.there_latency_s + there_bytes / self.there_bytes_per_s
        return there_s + self.back_latency_s + back_bytes / self.back_bytes_per_s

    def is_unlike(self, other: LinkSpeed) -> bool:
        """Whether a small message, or a large one either way, takes twice as long as before, or half."""
        ways = (0, 0), (_BULK_BYTES, 0), (0, _BULK_BYTES)
        return any(differ(self.takes_s(*way), other.takes_s(*way)) for way in ways)


def differ(one_s: float, other_s: float) -> bool:
    """Whether what takes these times over a link went over two that are not alike."""
    return max(one_s, other_s) > _ANOTHER * min(one_s, other_s) and abs(one_s - other_s) > _ANOTHER_S
