"""Folders of dead daemons are swept, those of living ones are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shisha_rt.daemon.runtime_folder import RuntimeFolder, lock_file


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "shisha-rt"


def _start_other() -> tuple[subprocess.Popen[str], Path]:
    """Another process with a folder of its own."""
    program = (
        "from shisha_rt.daemon.runtime_folder import RuntimeFolder\n"
        "import signal\n"
        "folder = RuntimeFolder()\n"
        "(folder.path / 'workers').touch()\n"
        "print(folder.path, flush=True)\n"
        "signal.pause()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    return other, Path(other.stdout.readline().strip())


def test_it_is_private_and_gone_after_close(base: Path) -> None:
    folder = RuntimeFolder()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert base.stat().st_mode & 0o777 == 0o700
    folder.close()
    assert list(base.iterdir()) == []


def test_a_killed_daemons_folder_is_swept_and_a_living_ones_is_not(base: Path) -> None:
    dead, dead_path = _start_other()
    living, living_path = _start_other()
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    assert dead_path.exists()
    mine = RuntimeFolder()
    assert not dead_path.exists()
    assert living_path.exists()
    living.kill()
    living.wait()
    for process in (dead, living):
        assert process.stdout is not None
        process.stdout.close()
    mine.close()


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    fd = lock_file(tmp_path / "a.lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "a.lock")
    os.close(fd)
    os.close(lock_file(tmp_path / "a.lock"))


def test_a_base_that_others_may_enter_is_refused(base: Path) -> None:
    base.mkdir()
    base.chmod(0o755)
    with pytest.raises(PermissionError, match="not this user's alone"):
        RuntimeFolder()
