"""How much an untrusted client may ask for at once.

Limits of the protocol, the same for every daemon, are constants here. Those that a daemon's owner may choose are fields
of `Limits`; `server_metadata` reports them to clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shisha_rt.model.input_sizes import MOST_INPUTS

MAX_HEADER_BYTES: Final = 64 * 2**10
MAX_NAME_LENGTH: Final = 256
"""Characters of an id, a stream, or the name of a place or strategy."""
MAX_INTEGER: Final = 2**63 - 1
"""The largest sequence or event number: fits a signed 64-bit integer of any language."""
MAX_DEADLINE_MS: Final = 86_400_000.0
"""A day. A longer deadline would be as good as none."""
MAX_PRIORITY: Final = 9
"""The least urgent; 1 is the most urgent, 0 means that none is given."""
MAX_SHADOW_FRAMES: Final = 1_000_000
MAX_ALPHA: Final = 1_000_000
"""Trials without gain after which a search may end."""
REFUSED_BYTES: Final = 1 << 20
"""A part that exceeds the limit by at most this is read and refused; a larger one closes its connection unread."""
MAX_EVENTS: Final = 10_000
"""The most events in one answer. A client that wants further events asks again, from the answer's `next` on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one daemon accepts. `max_message_bytes` bounds each part (as ZMQ_MAXMSGSIZE) and the sum of all parts.

    `max_answer_bytes`: for all outputs of one request together. `max_frames`: in one request.
    """

    max_message_bytes: int = 64 * 2**20
    max_answer_bytes: int = 64 * 2**20
    max_header_bytes: int = MAX_HEADER_BYTES
    max_parts: int = 1 + MOST_INPUTS
    max_in_flight: int = 256
    max_frames: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
