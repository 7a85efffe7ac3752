"""Waiting for descriptors."""

from __future__ import annotations

import os
import time
from contextlib import closing

from shisha_rt.process.channel import Channel
from shisha_rt.process.readable import await_ready


def test_a_wait_is_no_shorter_than_asked_for() -> None:
    """Else whoever waits for less than a millisecond does so a thousand times."""
    end, other = Channel.pair()
    with closing(end), closing(other):
        for within_s in (1e-4, 2.2e-3):
            waited_s = []
            for _ in range(5):
                begun_s = time.monotonic()
                assert await_ready([end.fileno()], within_s) == set()
                waited_s.append(time.monotonic() - begun_s)
            assert min(waited_s) >= within_s


def test_a_descriptor_whose_other_end_is_gone_is_ready() -> None:
    reads, writes = os.pipe()
    os.close(writes)
    assert await_ready([reads], 60.0) == {reads}
    os.close(reads)
