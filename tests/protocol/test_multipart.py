"""Messages of several parts."""

from __future__ import annotations

import subprocess
import sys

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
