"""One memory's record under several processes: no byte is lost, whoever is killed and wherever he stands."""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shisha_rt.process import budgets
from shisha_rt.process.budgets import Budgets, Reserved
from stages.emulate.budget import Budget
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
BANDWIDTH = 1e9  # a byte takes a nanosecond

_RESERVER = """
import sys
from stages.emulate.budget import Budget
budget = Budget(int(sys.argv[1]), 1e9)
times = int(sys.argv[2])
print("up", flush=True)
sys.stdin.readline()
for _ in range(times):
    budget.reserve(3, start_s=0.0)
print("done", flush=True)
"""

# Says so each time before and after: what was said before but not after may have been cut short.
_ENDLESS = """
import os, sys
from stages.emulate.budget import Budget
budget = Budget(int(sys.argv[1]), 1e9)
while True:
    os.write(1, b"<")
    budget.reserve(3, start_s=0.0)
    os.write(1, b">")
"""

_HOLDER = """
import fcntl, sys, time
from stages.emulate.budget import Budget
budget = Budget(int(sys.argv[1]), 1e9)
fcntl.flock(budget._fd, fcntl.LOCK_EX)
print("up", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def memories() -> Iterator[Budgets]:
    memories = Budgets(["hbm", "ddr"])
    yield memories
    memories.close()


def inherited(memories: Budgets, memory: str = "hbm") -> int:
    fd = memories.fd(memory)
    assert fd is not None
    return fd


@contextlib.contextmanager
def process(program: str, fd: int, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", program, str(fd), *map(str, arguments)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(fd,), cwd=ROOT, bufsize=0
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()


def said(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        assert selector.select(PATIENCE_S), "the process says nothing"
    return child.stdout.readline()


def test_reservations_queue_up_behind_each_other(memories: Budgets) -> None:
    first, other = Budget(inherited(memories), BANDWIDTH), Budget(inherited(memories), BANDWIDTH)
    assert first.reserve(1_000_000, start_s=5.0) == pytest.approx(5.001)
    assert other.reserve(2_000_000, start_s=5.0) == pytest.approx(5.003)
    assert first.reserve(1_000_000, start_s=6.0) == pytest.approx(6.001), "what was not used is gone"
    assert memories.reserved_bytes("hbm") == 4_000_000
    assert memories.reserved_bytes("ddr") == 0
    first.close()
    other.close()


def test_a_memory_without_a_limit_has_no_record() -> None:
    assert Budgets([]).fd("ram") is None


def test_nobody_loses_an_update_of_another(memories: Budgets) -> None:
    """Four processes at once, on one core or many: every reservation counts, in bytes and in time."""
    workers, times = 4, 5000
    fd = inherited(memories)
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(process(_RESERVER, fd, times)) for _ in range(workers)]
        assert [said(child) for child in children] == [b"up\n"] * workers
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
        assert [said(child) for child in children] == [b"done\n"] * workers
    assert budgets.read_record(fd) == Reserved(free_at_ns=3 * workers * times, reserved_bytes=3 * workers * times)


def test_a_descriptor_that_is_merely_inherited_would_lock_nobody_out(memories: Budgets) -> None:
    """Why each opens the record anew: a duplicate shares its lock with the original."""
    import fcntl

    fd = inherited(memories)
    first, duplicate = Budget(fd, BANDWIDTH), os.dup(fd)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.flock(duplicate, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes through
    with pytest.raises(BlockingIOError):
        fcntl.flock(first._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(duplicate)
    first.close()


def test_a_killed_holder_leaves_the_memory_free(memories: Budgets) -> None:
    fd = inherited(memories)
    with process(_HOLDER, fd) as holder, process(_RESERVER, fd, 10) as waiting:
        assert said(holder) == said(waiting) == b"up\n"
        assert waiting.stdin is not None
        waiting.stdin.write(b"go\n")
        assert budgets.read_record(fd) == Reserved(0, 0)
        holder.kill()
        assert said(waiting) == b"done\n"
    assert budgets.read_record(fd) == Reserved(30, 30)


def test_kills_at_any_moment_lose_and_tear_nothing(memories: Budgets) -> None:
    """Processes that reserve without end are killed one after the other; their last word tells what may be missing."""
    fd = inherited(memories)
    rng = random.Random(3)
    finished = cut_short = 0
    for _ in range(12):
        with process(_ENDLESS, fd) as first, process(_ENDLESS, fd) as other:
            counts = []
            for child in (first, other):
                assert child.stdout is not None
                data = child.stdout.read(1 + rng.randrange(400))
                child.send_signal(signal.SIGKILL)
                child.wait()
                while more := child.stdout.read(65536):
                    data += more
                counts.append((data.count(b">"), data.count(b"<") - data.count(b">")))
            finished += sum(done for done, _ in counts)
            cut_short += sum(begun for _, begun in counts)
    free_at_ns, reserved_bytes = budgets.read_record(fd)
    assert free_at_ns == reserved_bytes
    assert 3 * finished <= reserved_bytes <= 3 * (finished + cut_short)
