"""How much a stranger may ask for at once.

What is part of the protocol, and so the same for every daemon, is a constant here. What the owner of a daemon may
choose is a field of `Limits`; `server_metadata` tells the clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_HEADER_BYTES: Final = 64 * 2**10
MAX_NAME_LENGTH: Final = 256
"""Characters of an id, a stream, or the name of a place or strategy."""
MAX_INTEGER: Final = 2**63 - 1
"""The largest sequence or event number: what every language can hold."""
MAX_DEADLINE_MS: Final = 86_400_000.0
"""A day. Beyond it a deadline says nothing that leaving it out does not."""
MAX_PRIORITY: Final = 9
"""The least urgent; 1 is the most urgent, 0 says nothing."""
MAX_SHADOW_FRAMES: Final = 1_000_000
MAX_ALPHA: Final = 1_000_000
"""Trials without gain after which a search may end."""
REFUSED_BYTES: Final = 1 << 20
"""A part that is over the limit by no more than this is read and refused; a larger one ends its connection unread."""
MAX_EVENTS: Final = 10_000
"""Events in one answer; they may be fewer, see `next` in it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one daemon accepts. `max_message_bytes` bounds each part (as ZMQ_MAXMSGSIZE) and the sum of all parts.

    `max_answer_bytes`: what the outputs of one request take at most, all of them together. `max_frames`: of a request.
    """

    max_message_bytes: int = 64 * 2**20
    max_answer_bytes: int = 64 * 2**20
    max_header_bytes: int = MAX_HEADER_BYTES
    max_parts: int = 65
    max_in_flight: int = 256
    max_frames: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
