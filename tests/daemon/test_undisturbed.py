"""The interpreter is as it was when a daemon has ended: it may be one of many things that a program does."""

from __future__ import annotations

import gc
import sys

from shisha_rt.daemon.loop.undisturbed import undisturbed


def test_only_while_the_loop_runs() -> None:
    gc.unfreeze()  # tests/conftest.py has frozen what was collected
    before_s = sys.getswitchinterval()
    with undisturbed():
        assert sys.getswitchinterval() < before_s
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 1000
    assert sys.getswitchinterval() == before_s
    assert gc.get_freeze_count() == 0
