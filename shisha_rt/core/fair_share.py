"""How room is shared out among clients: by what is left (dynamic thresholds, Choudhury and Hahne 1998)."""

from __future__ import annotations


def is_granted(wanted: int, *, held: int, held_by_all: int, room: int) -> bool:
    """Whether a client that has `held` may have so much more: at most as much as then is nobody's.

    So one client alone gets half of all room, n greedy ones a part in n + 1 each, and however many there are, something
    is left for the next that comes.
    """
    return held + wanted <= room - held_by_all - wanted
