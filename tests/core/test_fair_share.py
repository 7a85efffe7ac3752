from __future__ import annotations

import pytest

from shisha_rt.core.fair_share import is_granted


@pytest.mark.parametrize("greedy", [1, 2, 3, 7])
def test_greedy_clients_get_a_part_each_and_one_is_left(greedy: int) -> None:
    room, held = 1000 * (greedy + 1), [0] * greedy
    while True:
        granted = False
        for client in range(greedy):
            if is_granted(1, held=held[client], held_by_all=sum(held), room=room):
                held[client] += 1
                granted = True
        if not granted:
            break
    assert held == pytest.approx([1000] * greedy, abs=1)
    assert is_granted(room - sum(held) >> 1, held=0, held_by_all=sum(held), room=room)


def test_nobody_gets_more_than_is_left() -> None:
    assert is_granted(5, held=0, held_by_all=0, room=10)
    assert not is_granted(6, held=0, held_by_all=0, room=10)
    assert not is_granted(1, held=0, held_by_all=9, room=10)
