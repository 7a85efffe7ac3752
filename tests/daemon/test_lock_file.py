"""A lock is held once, and never outlives its holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shisha_rt.daemon.front.ipc_socket import lock_file


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    fd = lock_file(tmp_path / "a.lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "a.lock")
    os.close(fd)
    os.close(lock_file(tmp_path / "a.lock"))


def test_a_killed_holder_holds_it_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    program = (
        "import signal, sys; from pathlib import Path; from shisha_rt.daemon.front.ipc_socket import lock_file\n"
        "lock_file(Path(sys.argv[1])); print('held', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            lock_file(path)
        other.send_signal(signal.SIGKILL)
        other.wait()
    os.close(lock_file(path))


def test_a_file_that_was_unlinked_meanwhile_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    old = lock_file(path)
    path.unlink()
    new = lock_file(path)
    assert path.stat().st_ino == os.fstat(new).st_ino != os.fstat(old).st_ino
    os.close(old)
    os.close(new)
