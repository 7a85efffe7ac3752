"""For all tests: what must be set before anything is imported, their kinds, and the order in which they run."""

import gc
import os
import platform
import signal
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests import dealing, kinds

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as stages.engines does, for tests that use the engine directly

_LONGEST_TEMPORARY = len("/var/tmp")
# Tests have sockets in their folders, under names of theirs, and a UNIX socket's path has at most 107 bytes.
if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_TEMPORARY:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"

_LEASES = tempfile.TemporaryDirectory(prefix="shisha-rt-tests-")
os.environ["SHISHA_LEASES"] = _LEASES.name

# A job that a shell starts in the background ignores SIGINT, and so would everything that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

platform.processor()  # starts a process at its first call, and remembers: no unit test is to be the first

# No timing decides a test's outcome, also where the machine has other things to do.
settings.register_profile(
    "untimed",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

_numbers = count()


@pytest.fixture(autouse=True)
def _leases_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a folder for leases of cores: no daemon shares cores with that of another test."""
    monkeypatch.setenv("SHISHA_LEASES", f"{_LEASES.name}/test-{next(_numbers)}")


@pytest.fixture(autouse=True)
def _alone_if_a_unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker(kinds.UNIT) is not None:
        monkeypatch.setattr(subprocess, "Popen", _refuse_a_child)
        monkeypatch.setattr("shisha_rt.process.child._servers.start", _refuse_a_child)


def _refuse_a_child(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a unit test starts a process; expected its file to import what does, as tests/kinds.py says")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-durations", action="store_true", help="time test files, in tests/durations.json")


def pytest_configure(config: pytest.Config) -> None:
    for kind, needs in kinds.NEEDS.items():
        config.addinivalue_line("markers", f"{kind}: {needs}")
    if config.getoption("--keep-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(dealing.Keeper())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """All tests of tables are long: where those are left out, what they import is not wanted either."""
    return (collection_path == kinds.TABLES and config.option.markexpr == "not long") or None


def pytest_collection() -> None:
    gc.disable()  # nearly all that is imported and collected is kept


def pytest_collection_finish() -> None:
    """Keep what has been imported and collected out of every collection of garbage: some tests ask for many."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(kinds.kind_of(item))
        if kinds.is_of_tables(item):
            item.add_marker("long")
    if hasattr(config, "workerinput"):
        items[:] = dealing.longest_first(items, dealing.kept())
