"""What `/proc` says of a process, and what is assumed where it cannot be asked."""

from __future__ import annotations

import os
import subprocess
import sys

from shisha_rt.process.stat import wants_core
from tests.process.descriptors import descriptors_to_be_had
from tests.waiting import until


def test_a_process_wants_a_core_while_it_computes() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as computes:
        until(lambda: wants_core(computes.pid), "its work")
        computes.kill()
    assert not wants_core(computes.pid)


def test_without_a_descriptor_to_be_had_nobody_counts_as_hung() -> None:
    """The watch ended the daemon: clients that only connect may take all descriptors."""
    with descriptors_to_be_had(0):
        assert wants_core(os.getpid())
