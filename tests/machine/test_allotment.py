"""Which cores are taken, and what becomes of places when limits change."""

from __future__ import annotations

import random

import pytest

from shisha_rt.machine.allotment import GROW_AFTER, Allotting, Change, CpuLimits, HostCore, by_preference, pick
from tests.wording import says

FOUR = frozenset(range(4))


def test_a_quota_that_is_just_enough_for_one_more_place_gives_it() -> None:
    """As control groups have it, microseconds of CPU time over those of a period, at any size."""
    cores = frozenset(range(1000))
    for places in range(1, 1000):
        quota = (places * 100_000 + 15_000) / 100_000
        assert CpuLimits(cores, quota).place_count == places
        assert CpuLimits(cores, quota - 0.00001).place_count == max(1, places - 1)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(None, 4), (9.0, 4), (4.0, 4), (3.99, 3), (3.15, 3), (3.0, 2), (2.0, 1), (1.0, 1), (0.2, 1)],
)
def test_a_place_is_a_core_that_can_be_kept_full(quota: float | None, expected: int) -> None:
    assert CpuLimits(FOUR, quota).place_count == expected


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (CpuLimits(FOUR), "4 cores may … no CPU quota below that"),
        (CpuLimits(frozenset([1]), 2.0), "1 core may … no CPU quota below that"),
        (CpuLimits(FOUR, 3.5), "4 cores may … a CPU quota of 3.5, less 0.15 for the … itself: 3 places"),
        (
            CpuLimits(FOUR, 1.0),
            "4 cores may … a CPU quota of 1, less 0.15 for the … itself: 1 place, throttled where …",
        ),
    ],
)
def test_limits_say_what_was_taken_and_why(limits: CpuLimits, said: str) -> None:
    assert str(limits) == says(said)
    assert limits.is_throttled == ("throttled" in said)


def test_fast_cores_then_one_of_each_pair_of_siblings_then_the_same_node() -> None:
    pairs = [(0, 4), (1, 5), (2, 6), (3, 7)]
    cores = [HostCore(core, 1, pairs[core % 4], node=core % 2) for core in range(8)]
    assert by_preference(cores) == [0, 2, 1, 3, 4, 6, 5, 7]
    slow_first = [HostCore(core, rank=2 if core < 2 else 1) for core in range(4)]
    assert by_preference(slow_first) == [2, 3, 0, 1]
    assert by_preference([HostCore(3), HostCore(1)]) == [1, 3]


def test_cores_that_others_have_are_taken_last() -> None:
    assert pick([0, 1, 2, 3], 2, lambda core: core != 0) == ([1, 2], [])
    assert pick([0, 1, 2, 3], 3, lambda core: core == 3) == ([3], [0, 1])
    assert pick([0, 1], 5, lambda _: True) == ([0, 1], [])


class TestAllotting:
    @staticmethod
    def places(count: int = 4) -> Allotting:
        return Allotting({f"core{core}": [core] for core in range(count)})

    def test_room_is_given_up_at_once_and_taken_once_it_has_stayed(self) -> None:
        allotting, every = self.places(), [f"core{core}" for core in range(4)]
        assert allotting.look(CpuLimits(FOUR), every) == Change()
        halved = allotting.look(CpuLimits(FOUR, 2.2), every)
        assert halved == Change(release=("core2", "core3"))
        left = every[:2]
        for _ in range(GROW_AFTER - 1):
            assert allotting.look(CpuLimits(FOUR), left) == Change()
        assert allotting.look(CpuLimits(FOUR), left) == Change((), 2, ("core2", "core3"))

    def test_room_that_does_not_stay_is_not_taken(self) -> None:
        allotting = self.places()
        for _ in range(10):
            assert allotting.look(CpuLimits(FOUR), ["core0"]) == Change()
            assert allotting.look(CpuLimits(FOUR, 1.0), ["core0"]) == Change()

    def test_a_core_that_may_not_be_used_any_more_is_left_for_another(self) -> None:
        allotting = self.places()
        moved = CpuLimits(frozenset([2, 3]))
        change = allotting.look(moved, ["core0", "core2"])
        assert change == Change(release=("core0",))
        for _ in range(GROW_AFTER - 2):
            assert allotting.look(moved, ["core2"]) == Change()
        assert allotting.look(moved, ["core2"]) == Change((), 1, ("core3",))

    def test_the_last_place_goes_only_for_another(self) -> None:
        """Which is not waited for then."""
        allotting = self.places(2)
        assert allotting.look(CpuLimits(frozenset([1])), ["core0"]) == Change(("core0",), 1, ("core1",))
        assert allotting.look(CpuLimits(frozenset([7])), ["core1"]) == Change()  # nothing here may be used
        assert allotting.look(CpuLimits(frozenset([7])), ["core0", "core1"]) == Change(release=("core1",))

    @pytest.mark.parametrize("seed", range(20))
    def test_random_worlds(self, seed: int) -> None:
        """Whatever limits do: never more places than they allow, never none, and as many as they allow in the end."""
        rng = random.Random(seed)
        count = rng.randint(1, 9)
        allotting, in_use = self.places(count), {"core0"}
        limits = CpuLimits(frozenset(range(count)))
        for step in range(300):
            if step < 250 and rng.random() < 0.3:
                cores = frozenset(rng.sample(range(count), rng.randint(1, count)))
                limits = CpuLimits(cores, rng.choice([None, rng.uniform(0.1, count + 1)]))
            change = allotting.look(limits, sorted(in_use))
            assert {*change.release} <= in_use
            assert not {*change.candidates} & in_use
            assert change.take <= len(change.candidates)
            in_use |= set(change.candidates[: change.take])
            in_use -= set(change.release)
            assert in_use
            usable = {place for place in in_use if int(place[4:]) in limits.cores}
            assert len(usable) <= limits.place_count
            assert usable == in_use or len(in_use) == 1
        assert len(usable) == limits.place_count
