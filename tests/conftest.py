"""For all tests: what must be set before anything is imported."""

import os
import signal
import tempfile
from itertools import count

import pytest

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as stages.engines does, for tests that use the engine directly

_LEASES = tempfile.TemporaryDirectory(prefix="shisha-rt-tests-")
os.environ["SHISHA_LEASES"] = _LEASES.name

# A job that a shell starts in the background ignores SIGINT, and so would everything that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = count()


@pytest.fixture(autouse=True)
def _leases_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a folder for leases of cores: no daemon shares cores with that of another test."""
    monkeypatch.setenv("SHISHA_LEASES", f"{_LEASES.name}/{next(_numbers)}")
