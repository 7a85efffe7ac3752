"""The speed of a link, and when it differs so much that the link counts as another one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

_ANOTHER: Final = 2.0  # ratio: a neighbour that always sends must not make it another link
_ANOTHER_S: Final = 2e-3  # difference, for a small message there and back, or `_BULK_BYTES` one way
_BULK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OneWay:
    """One direction of a link. A part's tensors take `latency_s` once, plus their bytes over `bytes_per_s`."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, size_bytes: float) -> float:
        return self.latency_s + size_bytes / self.bytes_per_s if size_bytes else 0.0


class LinkSpeed(NamedTuple):
    """Speed of a link in both directions; a link that has not been measured has none."""

    there: OneWay
    back: OneWay

    @property
    def fields(self) -> dict[str, float]:
        """Fields of the speed, as events and `status` show them."""
        return {
            f"{name}_{what}": value
            for name, way in zip(self._fields, self, strict=True)
            for what, value in (("latency_s", way.latency_s), ("bytes_per_s", way.bytes_per_s))
        }

    def takes_s(self, there_bytes: int, back_bytes: int) -> float:
        """Seconds there and back, one after the other; a message without bytes takes the latency."""
        bulk_s = there_bytes / self.there.bytes_per_s + back_bytes / self.back.bytes_per_s
        return self.there.latency_s + self.back.latency_s + bulk_s

    def is_unlike(self, other: LinkSpeed) -> bool:
        """Whether small messages, or large ones either way, take over twice or less than half as long as before."""
        ways = (0, 0), (_BULK_BYTES, 0), (0, _BULK_BYTES)
        return any(differ(self.takes_s(*way), other.takes_s(*way)) for way in ways)


def differ(one_s: float, other_s: float) -> bool:
    """Whether two times over a link differ so much that the link counts as another one."""
    return max(one_s, other_s) > _ANOTHER * min(one_s, other_s) and abs(one_s - other_s) > _ANOTHER_S
