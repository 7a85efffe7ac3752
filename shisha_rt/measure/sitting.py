"""How anything is measured: only what the store lacks, in a separate process, one at a time on this host."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from shisha_rt.cache import cache_folder
from shisha_rt.errors import Error, Failure
from shisha_rt.measure.compile import Tell, silent
from shisha_rt.messages.calibration import MeasuringJob, Progress
from shisha_rt.process.job import run_job

AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)
KnownT = TypeVar("KnownT")
MissingT = TypeVar("MissingT")


@dataclass(frozen=True, slots=True)
class Sitting:
    """How something is measured. `beside`: the pid of a daemon that serves frames meanwhile; 0: none.

    What needs several threads may then be left out. `renew`: measure again what was measured while other processes had
    the cores. `waits`: called with None if it has to wait while another process measures, then with how many seconds it
    has waited.
    """

    tell: Tell = silent
    beside: int = 0
    renew: bool = False
    waits: Callable[[float | None], None] = lambda _: None

    @property
    def family(self) -> int:
        """The pid of the process whose descendants do not count as others."""
        return self.beside or os.getpid()


ALONE: Final = Sitting()
"""No daemon serves meanwhile, and nobody hears of progress."""


def known_or_measured(
    known: Callable[[], KnownT],
    missing: Callable[[KnownT], MissingT],
    measured: Callable[[MissingT], None],
    sitting: Sitting,
) -> KnownT:
    """What `known` reads from the store, after `measured` has measured and stored what is `missing` (falsy if nothing).

    After waiting for its turn the process reads again, as another one may have measured the same.
    """
    there = known()
    if missing(there):
        with turn(sitting):
            there = known()
            lacking = missing(there)
            if lacking:
                measured(lacking)
                there = known()
    return there


@contextmanager
def turn(sitting: Sitting) -> Iterator[None]:
    """Hold this host's lock, so that one calibration runs at a time; the kernel releases it if the process dies."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)  # somebody may have just emptied the cache
    try:
        lock = os.open(folder / ".calibration.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # the folder may not be written, but every process that may read it can lock it
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _wait_for(lock, sitting)
        yield
    finally:
        os.close(lock)


def _wait_for(lock: int, sitting: Sitting) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        began_s = time.monotonic()
        sitting.tell("waiting while another process measures on this host: one does at a time")
        sitting.waits(None)
        fcntl.flock(lock, fcntl.LOCK_EX)
        waited_s = time.monotonic() - began_s
        sitting.tell(f"waited {waited_s:.0f} s for the other process")
        sitting.waits(waited_s)


def measure(subject: str, module: str, job: MeasuringJob, answer: type[AnswerT], tell: Tell) -> AnswerT:
    """The answer of `python -m MODULE JOB`. Raises Failure, with the child's last words, if there is none."""
    where = f"core{'s' if len(job.cores) > 1 else ''} {', '.join(map(str, job.cores))}"
    what = f"measuring {subject} on {where} (once; kept for the next start)"
    tell(what)
    failed = f"{subject} could not be measured"
    decoder: msgspec.json.Decoder[Progress | AnswerT] = msgspec.json.Decoder(Progress | answer)
    quarters = 0

    def hear(line: bytes) -> None:
        """Pass on progress in steps of a quarter."""
        nonlocal quarters
        message = decoder.decode(line)
        if isinstance(message, Progress) and int(message.done_ratio * 4) > quarters:
            quarters = int(message.done_ratio * 4)
            tell(f"{what}: {quarters / 4:.0%}")

    said = run_job(module, msgspec.json.encode(job).decode(), failed=failed, hear=hear)
    answered = decoder.decode(said) if said else None
    if not isinstance(answered, answer):
        raise Failure(f"{failed}: it answered nothing", Error.CHILD_DIED)
    return answered
