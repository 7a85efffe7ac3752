"""How a limited resource is shared among clients: by dynamic thresholds (Choudhury and Hahne 1998)."""

from __future__ import annotations


def is_granted(wanted: int, *, held: int, held_by_all: int, room: int) -> bool:
    """Whether a client that holds `held` may have `wanted` more: it may hold at most as much as is then left unused.

    So one client alone gets half of `room`, n greedy ones get 1 / (n + 1) each, and however many there are, something
    is left for the next one.
    """
    return held + wanted <= room - held_by_all - wanted
