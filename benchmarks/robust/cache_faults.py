"""Answers of daemons whose cache is damaged, has no space, or was left by killed daemons.

Each must start and answer correctly or, if the disk is full, end with status 1 and one line that says what to do.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.report.results import Row
from benchmarks.rigs.cache_place import cache_at
from tests.serving.daemon_process import DaemonEnded, DaemonProcess, machine_file, serve_command
from tests.serving.identity_model import frame_of
from tests.serving.load import PAUSE_S, Load
from tests.waiting import until

_FRAMES: Final = 5
_DAEMONS: Final = 3
_KILLED_WITHIN_S: Final = 3.0
_PAGE: Final = 4096
_FLIPPED: Final = 16
_MOST_SAID: Final = 400
_TUNED: Final = ("--strategy", "guided", "--batch", "1")  # batches would be compared for long
_TUNED_S: Final = 300.0


def damaged(folder: Path, model: Path) -> Iterator[Row]:
    """Each file of a cache truncated, and with bytes flipped."""
    folder.mkdir()
    whole, broken = folder / "whole", folder / "broken"
    with cache_at(whole), _daemon(folder, model) as daemon, Load(daemon.endpoint, pause_s=PAUSE_S):
        # With frames of its own it would wait until others leave the cores.
        until(lambda: daemon.control.status()["tuner"]["state"] == "watching", "the end of tuning", within_s=_TUNED_S)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    for file in files:
        for how in ("truncated", "flipped bytes"):
            shutil.copytree(whole, broken)
            data = bytearray((broken / file).read_bytes())
            half = len(data) // 2
            if how == "truncated":
                del data[half:]
            else:  # of what is there, in its latter half: at its beginning it is told by that
                there = [at for at, byte in enumerate(data) if byte and at >= half] or [half]
                for at in there[:: max(1, len(there) // _FLIPPED)]:
                    data[at] ^= 0xFF
            (broken / file).write_bytes(data)
            with cache_at(broken):
                said, stderr, bad = _served(folder, model)
            of = f"{file.parts[1]}: " if len(file.parts) > 2 else ""
            yield _row(f"{of}{file.name} {how}", said, stderr, bad)
            shutil.rmtree(broken)


def disk_full(folder: Path, model: Path) -> Iterator[Row]:
    """A cache on disks of different sizes, from few pages up to enough."""
    folder.mkdir()
    disk = folder / "disk"
    disk.mkdir()
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode:
        yield fault_row("disk full", "not tried: unshare -rm is not allowed here", "", 0)
        return
    for pages in (2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64):
        mount = f'mount -t tmpfs -o size={pages * _PAGE} tmpfs "$0" && exec "$@"'
        within = (unshare, "-rm", "sh", "-c", mount, str(disk))
        with cache_at(disk):
            said, stderr, bad = _served(folder, model, within)
        yield _row(f"a disk of {pages * _PAGE // 1024} KiB", said, stderr, bad)


def killed_while_compiling(folder: Path, model: Path, rounds: int) -> Iterator[Row]:
    """Daemons that share a cache and are killed at random before they serve; then one that is not killed."""
    folder.mkdir()
    rng = random.Random(0)
    for number in range(rounds):
        cache = folder / f"cache{number}"
        with cache_at(cache):
            _start_and_kill(folder, model, rng)
            said, stderr, bad = _served(folder, model)
        unfinished = list(cache.rglob(".*unfinished*"))
        held = [path for path in cache.rglob("*.lock") if _is_held(path)]
        yield _row(
            f"{_DAEMONS} daemons killed while they compile, {number + 1}",
            said,
            f"{len(held)} locks held, {len(unfinished)} unfinished folders; {stderr}",
            bad + len(held) + len(unfinished),
        )


def _start_and_kill(folder: Path, model: Path, rng: random.Random) -> None:
    command = serve_command(model, "--machine", machine_file(folder, ("a", "b")), *_TUNED)
    nothing = subprocess.DEVNULL
    started = [
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        for _ in range(_DAEMONS)
    ]
    for process in started:
        time.sleep(rng.uniform(0, _KILLED_WITHIN_S / _DAEMONS))
        os.killpg(process.pid, signal.SIGKILL)  # with its compilers
        process.wait()


def _is_held(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _daemon(folder: Path, model: Path, within: Sequence[str] = ()) -> Iterator[DaemonProcess]:
    options = ("--machine", machine_file(folder, ("a", "b")), *_TUNED)
    with DaemonProcess(folder, model, *options, within=within, is_program=True) as daemon:
        yield daemon


def _served(folder: Path, model: Path, within: Sequence[str] = ()) -> tuple[str, str, int]:
    """The client's result, the daemon's standard error, and the number of wrong or missing answers."""
    try:
        with _daemon(folder, model, within) as daemon:
            frames = [frame_of(number) for number in range(1, _FRAMES + 1)]
            wrong = sum(not np.array_equal(daemon.control.infer(frame).output, frame) for frame in frames)
            return f"{_FRAMES - wrong} right answers", daemon.stderr(), wrong
    except DaemonEnded as ended:
        line = ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else ""
        explained = ended.status == 1 and bool(within) and "XDG_CACHE_HOME" in line
        return f"status {ended.status}: {line}", ended.stderr, not explained


def fault_row(
    fault: str,
    client: str,
    status: str,
    bad: int,
    *,
    gap_s: float | None = None,
    without_s: float | None = None,
    kept: bool = True,
) -> Row:
    """`bad`: answers that were lost or wrong."""
    return {
        "fault": fault,
        "client": client,
        "status": status,
        "gap s": gap_s,
        "gap without s": without_s,
        "time over ordinary": None,
        "lost or wrong": bad,
        "kept": "yes" if kept and not bad else "no",
    }


def _row(fault: str, client: str, stderr: str, bad: int) -> Row:
    lines = [line for line in stderr.splitlines() if not line.startswith("starting") and "are shared" not in line]
    return fault_row(fault, tidied(client), tidied("; ".join(lines)[-_MOST_SAID:]), bad, kept="Traceback" not in stderr)


def tidied(text: str) -> str:
    """A text without times, folders of this run, and digests."""
    for pattern in (r"\d{4}-\d\d-\d\d [\d:,]+ ", r"\S*/(?=shisha-rt/)", r"[0-9a-f]{64}"):
        text = re.sub(pattern, "", text)
    return text
