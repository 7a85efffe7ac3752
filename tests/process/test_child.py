"""A child's start leaves a process that is told of by its pidfd, or nothing at all."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from shisha_rt.process.child import (
    Child,
    begin_child,
    fork_server,
    last_line,
    reap_orphan,
    start_child,
    start_with_channel,
)
from tests.process.descriptors import descriptors_to_be_had, low_descriptors_in_use, open_descriptors
from tests.waiting import PATIENCE_S, until

PROGRAM = """
import os, sys, time

for fd in sys.argv[1:]:
    os.write(int(fd), b"inherited")
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "sleeper.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return "sleeper"


def wait_until_up(child: Child) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"


def ended_children() -> set[int]:
    """Children that have ended and are not removed yet. Other tests may have left some."""
    ended = set()
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if child.status() == psutil.STATUS_ZOMBIE:
                ended.add(child.pid)
    return ended


def test_a_child_inherits_what_it_is_passed_and_ends_when_it_is_to(module: str) -> None:
    before = open_descriptors()
    reading, writing = os.pipe()
    child = start_child(module, str(writing), pass_fds=[writing], stdout=subprocess.PIPE)
    os.close(writing)
    wait_until_up(child)
    assert os.read(reading, 100) == b"inherited"
    os.close(reading)
    assert select.select([child.pidfd], [], [], 0)[0] == []
    os.kill(child.pid, signal.SIGKILL)
    assert select.select([child.pidfd], [], [], PATIENCE_S)[0] == [child.pidfd]
    assert child.end() == -signal.SIGKILL
    assert open_descriptors() == before


def test_ending_a_child_kills_it(module: str) -> None:
    child = start_child(module, stdout=subprocess.PIPE)
    assert child.end() == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(child.pid), "its removal")


@pytest.mark.parametrize("when", ["at once", "once it runs"])
def test_a_start_that_is_dropped_leaves_nothing(module: str, when: str) -> None:
    ended_before = ended_children()
    begin_child(module).child().end()  # begins the thread, and its first use of what it keeps
    until(lambda: ended_children() <= ended_before)
    before = open_descriptors()
    reading, writing = os.pipe()
    begun = begin_child(module, str(writing), pass_fds=[writing])
    os.close(writing)
    if when == "once it runs":
        assert os.read(reading, 100) == b"inherited"
        assert select.select([begun.fileno()], [], [], PATIENCE_S)[0]
    begun.drop()
    until(lambda: os.read(reading, 100) == b"", "the child's end")  # all that had the pipe are gone
    os.close(reading)
    until(lambda: open_descriptors() == before and ended_children() <= ended_before, "its removal")


def test_who_waits_for_a_start_has_the_child_or_the_reason(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_before = ended_children()
    begin_child(module).child().end()
    before = open_descriptors()
    assert begin_child(module).child().end() == -signal.SIGKILL
    until(lambda: ended_children() <= ended_before)

    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, "no process")

    monkeypatch.setattr("shisha_rt.process.child._servers.start", refuse)
    with pytest.raises(OSError, match="no process"):
        begin_child(module).child()
    assert open_descriptors() == before


def test_who_waits_for_a_child_does_not_wait_for_what_is_left_of_it(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon stood still for seconds: the kernel let it wait for a dead worker's threads, which got no core."""
    waitid, may_be_removed, removers = os.waitid, threading.Event(), []

    def held_up(kind: int, ended: int, options: int) -> object:
        if not options & os.WNOWAIT:
            removers.append(threading.current_thread())
            assert may_be_removed.wait(PATIENCE_S)
        return waitid(kind, ended, options)

    child = start_child(module, stdout=subprocess.PIPE)
    monkeypatch.setattr(os, "waitid", held_up)
    ending = threading.Thread(target=child.end, daemon=True)
    ending.start()
    until(lambda: removers, "its removal, which is held up")
    assert ending not in removers
    ending.join(PATIENCE_S)
    assert child.returncode == -signal.SIGKILL
    assert psutil.pid_exists(child.pid)
    may_be_removed.set()
    until(lambda: not psutil.pid_exists(child.pid), "its removal")


def test_a_child_is_removed_without_a_thread_to_be_had_too(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start_child(module, stdout=subprocess.PIPE)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("shisha_rt.process.child._thread.start_new_thread", refuse)
    assert child.end() == -signal.SIGKILL
    assert not psutil.pid_exists(child.pid)


def test_a_child_and_a_new_fork_server_are_waited_for_whatever_number_their_descriptors_have() -> None:
    with low_descriptors_in_use():
        server = fork_server()
        if server is not None:
            os.kill(server, signal.SIGKILL)
        child = start_child("json.tool", stdin=subprocess.PIPE)
        assert child.pidfd > 1024
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.kill()
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
        child.end()


def test_a_child_ends_with_the_thread_that_started_it_if_it_is_to(module: str) -> None:
    children = []

    def start() -> None:
        children.append(start_child(module, stdout=subprocess.PIPE, ended_by=signal.SIGTERM))
        wait_until_up(children[0])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    (child,) = children
    assert child.wait(PATIENCE_S) == -signal.SIGTERM
    child.end()


@pytest.mark.parametrize("forked", [False, True])
def test_a_child_without_descriptors_to_be_had_leaves_nothing(
    forked: bool, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far its start comes: one descriptor more at each try, until there are enough."""
    arguments = [module]
    if forked:
        monkeypatch.delenv("PYTHONPATH")
        arguments = ["tests.process.forked_child", "waits"]
        ended_before = ended_children()
        start_child(*arguments).end()  # now there is a server
        until(lambda: ended_children() <= ended_before)
    before = open_descriptors()
    children_before = {*psutil.Process().children()}
    for count in range(20):
        with suppress(OSError), descriptors_to_be_had(count):
            start_child(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE).end()
            break
        assert open_descriptors() == before
        assert children_before.issuperset(psutil.Process().children())
    assert 4 < count < 19  # two pipes and what stands for /dev/null
    assert open_descriptors() == before


@pytest.mark.parametrize("module", ["preparer", "profiler", "tuner"])
def test_a_child_with_nobody_at_its_line_ends_without_a_word(module: str) -> None:
    with tempfile.TemporaryFile() as stderr:
        child, channel = start_with_channel(f"shisha_rt.daemon.children.{module}", stderr=stderr.fileno())
        channel.close()
        assert child.wait(PATIENCE_S) == 1
        child.end()
        assert last_line(stderr) == ""


def test_an_orphan_is_reaped_but_no_child_of_our_own(module: str) -> None:
    before = ended_children()
    child = start_child(module, stdout=subprocess.PIPE)
    wait_until_up(child)
    orphan = os.fork()
    if orphan == 0:
        os._exit(0)
    until(lambda: not psutil.pid_exists(orphan), "the orphan is reaped", meanwhile=reap_orphan)
    child.kill()
    until(lambda: child.pid in ended_children())
    reap_orphan()
    assert ended_children() - before == {child.pid}
    assert child.end() == -signal.SIGKILL
    until(lambda: ended_children() <= before)


def test_a_child_that_cannot_be_watched_is_ended(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()

    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, f"no descriptor for {pid}")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(OSError, match="no descriptor for") as refused:
        start_child(module, stdout=subprocess.PIPE)
    assert not psutil.pid_exists(int(str(refused.value.strerror).split()[-1]))
    assert open_descriptors() == before


@pytest.mark.parametrize(("said", "last"), [(b"", ""), (b"one\n", "one"), (b"one\n two \xff\n\n", "two \ufffd")])
def test_the_last_line(said: bytes, last: str) -> None:
    with tempfile.TemporaryFile() as stderr:
        stderr.write(said)
        assert last_line(stderr).strip() == last
