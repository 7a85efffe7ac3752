"""Memory that may be taken."""

from __future__ import annotations

import psutil

from shisha_rt.machine.host.memory import available_memory_bytes, free_memory_ratio, own_memory_bytes
from tests.process.descriptors import descriptors_to_be_had


def test_what_is_available_is_some_of_what_there_is() -> None:
    assert 0 < available_memory_bytes() < own_memory_bytes() <= psutil.virtual_memory().total
    assert 0 < free_memory_ratio() < 1


def test_without_a_descriptor_to_be_had_none_counts_as_available() -> None:
    """It ended the daemon, which looks at it all the time: clients that only connect may take all descriptors."""
    with descriptors_to_be_had(0):
        assert available_memory_bytes() == 0
