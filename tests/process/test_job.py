"""Work in a process of its own ends well, or with the last that the process said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shisha_rt.process import job
from shisha_rt.process.job import JobFailed, how_ended, run_job
from tests.commands import command_of
from tests.waiting import PATIENCE_S
from tests.wording import says


@pytest.fixture(autouse=True)
def _jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "upper.py").write_text(
        "import sys\nsys.stdout.write(sys.stdin.read().upper() + ' '.join(sys.argv[1:]))"
    )
    (tmp_path / "chatty.py").write_text(
        "import sys\nprint('line\\n' * 200_000)\nopen(sys.argv[1], 'w').write('by itself')"
    )
    (tmp_path / "bad.py").write_text("import sys\nprint('one\\ntwo', file=sys.stderr)\nsys.exit(3)")
    (tmp_path / "silent.py").write_text("import os\nos._exit(3)")
    (tmp_path / "killed.py").write_text("import os, sys\nprint('one', file=sys.stderr)\nos.abort()")
    (tmp_path / "endless.py").write_text("import time\nprint('going on', flush=True)\ntime.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))


def test_a_job_reads_what_it_is_given_and_its_lines_are_heard() -> None:
    heard: list[bytes] = []
    last = run_job("upper", "and", "more", failed="no", given=b"some\nlines\n" * 20_000, hear=heard.append)
    assert last == heard[-1]
    assert heard == [b"SOME\n", b"LINES\n"] * 20_000 + [b"and more"]


def test_a_job_that_nobody_hears_is_not_held_up(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    run_job("chatty", str(ended), failed="no")
    assert ended.read_text() == "by itself"


@pytest.mark.parametrize(
    ("module", "said", "status"),
    [
        ("bad", "two", 3),
        ("silent", "exit status 3", 3),
        ("killed", "… (SIGABRT)", -signal.SIGABRT),
    ],
)
def test_a_job_that_fails(module: str, said: str, status: int) -> None:
    with pytest.raises(JobFailed) as failure:
        run_job(module, failed="it failed")
    assert str(failure.value) == says(f"it failed: {said}")
    assert (failure.value.status, failure.value.reason) == (status, says(said))


def test_a_process_may_end_too_early_without_a_fault() -> None:
    assert how_ended(0).endswith(" 0")


def test_a_process_may_be_ended_by_a_signal_without_a_name() -> None:
    """A worker that somebody ended by such a one ended its daemon."""
    assert how_ended(-(signal.SIGRTMIN + 6)).endswith(f" {signal.SIGRTMIN + 6}")


def test_a_job_that_comes_to_no_end() -> None:
    heard: list[bytes] = []
    with pytest.raises(JobFailed, match=r"^it failed: it came .* no end$") as failure:
        run_job("endless", failed="it failed", hear=heard.append, limit_s=1)
    assert failure.value.status is None


def _endless() -> list[psutil.Process]:
    """By its command: other tests' children, which are waited for late, come and go."""
    return [child for child in psutil.Process().children() if "endless" in command_of(child)]


def test_a_job_ends_with_what_hears_it() -> None:
    def hear(line: bytes) -> None:
        raise KeyError(line)

    with pytest.raises(KeyError, match="going on"):
        run_job("endless", failed="no", hear=hear)
    assert not _endless()


def test_a_job_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "tells.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    script = "from shisha_rt.process.job import run_job; run_job('tells', failed='no', hear=lambda x: print(int(x)))"
    with subprocess.Popen([sys.executable, "-u", "-c", script], stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        job = psutil.Process(int(waiting.stdout.readline()))
        waiting.terminate()
    try:
        job.wait(PATIENCE_S)
    finally:
        if job.is_running():
            job.kill()


def test_an_interrupt_ends_it_too() -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(SystemExit):
            run_job("endless", failed="it failed", hear=lambda _: signal.raise_signal(signal.SIGALRM))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not _endless()


def test_a_job_that_is_stopped_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited for it waited for ever, and held the lock under which one at a time is measured on a host."""
    (tmp_path / "stops.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)")
    monkeypatch.setattr(job, "SILENCE_S", 1.0)
    with pytest.raises(JobFailed, match=r"^it failed: it hangs: no sign .* for \d+ s$") as failure:
        run_job("stops", failed="it failed")
    assert failure.value.status is None


def test_a_job_of_a_process_that_has_many_files_open(tmp_path: Path) -> None:
    """In a process of its own, which has the descriptors below 1,024 in use, as a program may that embeds us."""
    code = (
        "import os, resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))\n"
        "from shisha_rt.process.job import run_job\n"
        "kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]\n"
        "print(run_job('upper', 'done', failed='x', given=b'all ').decode())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.stdout, ran.returncode) == ("ALL done\n", 0)
