"""Messages of several parts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from shisha_rt.protocol.multipart import are_descriptors_left
from tests.process.descriptors import descriptors_to_be_had

_WITHOUT_DESCRIPTORS = """
import zmq
from zmq.utils.garbage import gc
from shisha_rt.protocol.multipart import receive_parts, send_parts
from tests.process.descriptors import descriptors_to_be_had

with zmq.Context() as context, context.socket(zmq.PAIR) as ours, context.socket(zmq.PAIR) as theirs:
    ours.bind("inproc://here")
    theirs.connect("inproc://here")
    parts = [b"header", bytes(1 << 20), b"a small one", bytes(1 << 17)]
    for count in range(20):
        with descriptors_to_be_had(count):
            send_parts(ours, parts, copy=False)
        assert theirs.poll(10_000)
        assert [frame.bytes for frame in receive_parts(theirs)] == parts
        assert gc.is_alive() == (count >= 16)
"""


def test_large_parts_go_whole_without_a_descriptor_to_be_had() -> None:
    """In a process of its own: pyzmq takes descriptors for the first large part that is not copied, and keeps them."""
    ended = subprocess.run([sys.executable, "-c", _WITHOUT_DESCRIPTORS], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Counts the files that are opened."""
    opened, plain = count(), os.eventfd

    def eventfd(value: int) -> int:
        next(opened)
        return plain(value)

    monkeypatch.setattr(os, "eventfd", eventfd)
    return opened


def test_descriptors_are_left_as_far_as_the_limit_allows() -> None:
    for left in range(5):
        with descriptors_to_be_had(left):
            assert [are_descriptors_left(wanted) for wanted in range(1, 5)] == [
                wanted <= left for wanted in range(1, 5)
            ]


def test_the_last_number_may_be_in_use(opened: Iterator[int]) -> None:
    with descriptors_to_be_had(5):
        last = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
        os.dup2(0, last)
        try:
            assert are_descriptors_left(4)
            assert not are_descriptors_left(5)
        finally:
            os.close(last)
    assert next(opened) == 9


def test_it_takes_no_file_each_where_there_are_plenty(opened: Iterator[int]) -> None:
    assert are_descriptors_left(32)
    assert next(opened) == 1
