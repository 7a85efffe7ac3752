"""Children are forked from a process that has imported what they need, and are as if their parent had started them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from shisha_rt.process import child as child_module
from shisha_rt.process import fork_server
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import Child, children_environment, expect_children, last_line, start_child
from shisha_rt.process.fork_line import ANSWER, SERVER, ChildOrder, ForkLine, ServerGone
from shisha_rt.process.fork_server import _fork_server, _place
from shisha_rt.process.parent import CHILDREN_SCORE, MORE_PROCESSES
from tests.commands import command_of
from tests.drawn import chunks
from tests.process.descriptors import open_descriptors
from tests.waiting import PATIENCE_S, until

FORKED = "tests.process.forked_child"
IMPORTS_NUMPY = "shisha_rt.tensors"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _servers_of_its_own() -> Iterator[None]:
    """Those of this process may expect children, as other tests have asked for: a new server then forks only later."""
    servers = child_module._Servers()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(child_module, "_servers", servers)
        yield
    if servers.line is not None:
        servers.line.close()


@contextlib.contextmanager
def forked(*arguments: str, **options: Any) -> Iterator[tuple[Child, dict[str, Any]]]:
    child = start_child(FORKED, *arguments, stdout=subprocess.PIPE, **options)
    try:
        assert child.stdout is not None
        yield child, json.loads(child.stdout.readline())
    finally:
        child.end()


@pytest.fixture
def server() -> psutil.Process:
    """The one of this process, once it forks."""
    with forked("returns"):
        pass
    return psutil.Process(server_pid())


def server_pid() -> int:
    line = child_module._servers.line
    assert line is not None
    return line.server


def test_a_child_is_as_if_its_parent_had_started_it(
    server: psutil.Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it inherits is what its parent has now, not what that had when the server was started."""
    cores = os.sched_getaffinity(0)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setenv("SHISHA_TEST", "of now")
    monkeypatch.chdir(tmp_path)
    try:
        os.sched_setaffinity(0, {min(cores)})
        resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1]))
        with forked("waits") as (child, inherited):
            assert child.pid in {process.pid for process in psutil.Process().children()}
            assert psutil.Process(child.pid).cmdline() == [sys.executable, "-m", FORKED, "waits"]
    finally:
        os.sched_setaffinity(0, cores)
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    assert inherited.pop("modules") > 0
    assert inherited.pop("descriptors")[:3] == [0, 1, 2]
    assert inherited.pop("killed_before") >= CHILDREN_SCORE
    assert inherited == {
        "parent": os.getpid(),
        "threads": 1,
        "said": [],
        "folder": str(tmp_path),
        "variable": "of now",
        "cores": [min(cores)],
        "niceness": os.nice(0),
        "files": [files[0] - 1, files[1]],
        "terminated": True,
    }
    assert psutil.Process(server.pid).cmdline() == [sys.executable, "-m", SERVER]


_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not _HUGE_PAGES.exists() or "[never]" in _HUGE_PAGES.read_text() or platform.libc_ver()[0] != "glibc",
    reason="the kernel gives no huge pages, or the C library does not ask for them",
)
@pytest.mark.parametrize("is_forked", [True, False])
def test_its_memory_is_in_huge_pages_unless_the_environment_says_otherwise(
    server: psutil.Process, is_forked: bool
) -> None:
    assert server.is_running()
    with forked("fills memory", environment=None if is_forked else children_environment() | {"LD_ANY": "1"}) as (
        _,
        has,
    ):
        assert has["huge_kib"] > 32 << 10
    with forked("fills memory", environment=dict(os.environ)) as (_, has):
        assert has["huge_kib"] == 0 or "[always]" in _HUGE_PAGES.read_text()


@pytest.mark.parametrize(
    ("own", "childs"),
    [
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.arena_max=2", "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_what_the_environment_says_of_memory_stays(monkeypatch: pytest.MonkeyPatch, own: str, childs: str) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", own)
    assert children_environment()["GLIBC_TUNABLES"] == childs


def test_it_has_the_descriptors_that_it_is_passed_under_their_numbers_and_no_others(server: psutil.Process) -> None:
    pipes = [os.pipe() for _ in range(5)]
    before = open_descriptors()
    for at, (_, writing) in enumerate(pipes):
        os.write(writing, str(at).encode())
    reading = [reading for reading, _ in pipes]
    random.Random(0).shuffle(reading)
    with forked("returns", *map(str, reading), pass_fds=reading) as (_, inherited):
        assert inherited["said"] == [str([ends[0] for ends in pipes].index(fd)) for fd in reading]
        scanning = 1  # the one by which it looks
        assert len(inherited["descriptors"]) == 3 + len(reading) + scanning
    assert open_descriptors() == before
    for ends in pipes:
        for fd in ends:
            os.close(fd)


@pytest.mark.parametrize("seeds", chunks(400, 40, short=10))
def test_descriptors_get_their_numbers_whatever_numbers_they_have(seeds: range) -> None:
    """Also where one has the number that another is to get."""
    for seed in seeds:
        rng = random.Random(seed)
        taken = rng.sample(range(300, 312), 6)
        numbers = rng.sample(range(300, 312), 6)
        fds = []
        for at, number in enumerate(taken):
            with tempfile.TemporaryFile() as file:
                file.write(str(at).encode())
                file.flush()
                os.dup2(file.fileno(), number)
            fds.append(number)
        _place(fds, numbers)
        assert [os.pread(number, 10, 0).decode() for number in numbers] == [str(at) for at in range(6)]
        for number in range(300, 312):
            if number not in numbers:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    fcntl.fcntl(number, fcntl.F_GETFD)
            else:
                os.close(number)


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("returns", 7, ""),
        ("complains", 1, "a complaint"),
        ("raises", 1, "ValueError: a reason"),
        ("wants a thread", 1, f"can't start new thread; {MORE_PROCESSES}"),
        ("wants a process", 1, f"{os.strerror(errno.EAGAIN)}; {MORE_PROCESSES}"),
        ("is killed", -signal.SIGKILL, ""),
    ],
)
def test_its_end_is_told_as_that_of_any_child(how: str, status: int, said: str) -> None:
    with tempfile.TemporaryFile() as stderr, forked(how, stderr=stderr) as (child, _):
        assert child.wait(PATIENCE_S) == status
        assert child.poll() == child.returncode == status
        child.kill()  # that it is gone is no error
        assert last_line(stderr) == said


def test_waiting_for_a_child_may_take_too_long() -> None:
    with forked("waits") as (child, _):
        assert child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        child.terminate()
        assert child.wait(PATIENCE_S) == -signal.SIGTERM


def test_it_gets_its_signal_at_the_end_of_its_parent(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\nfrom shisha_rt.process.child import start_child\n"
        f"child = start_child('{FORKED}', 'waits', stdout=subprocess.PIPE, ended_by=15)\n"
        "child.stdout.readline()\nprint(child.pid, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        below = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    until(lambda: not child.is_running(), "the end of the child")
    until(lambda: not any(process.is_running() for process in below), "the end of its server")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_is_gone_or_hangs_is_followed_by_another(server: psutil.Process, number: int) -> None:
    with forked("waits") as (child, _):
        server.send_signal(number)
        until(lambda: server.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED), "the signal")
        with forked("returns") as (_, inherited):
            assert inherited["parent"] == os.getpid()
        assert server_pid() != server.pid
        until(lambda: not server.is_running(), "the end of the server")
        assert child.poll() is None


def test_an_order_is_run_once_if_its_server_dies_before_it_answers(
    server: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first child has the order and the descriptors, too, and its parent does not know it."""
    answers: list[bytes] = []
    receive = ForkLine._receive

    def receive_too_late(line: ForkLine) -> bytes:
        answers.append(receive(line))
        if len(answers) == 1:
            raise ServerGone
        return answers[-1]

    monkeypatch.setattr(ForkLine, "_receive", receive_too_late)
    child = start_child(FORKED, "returns", stdout=subprocess.PIPE)
    try:
        os.waitpid(ANSWER.unpack(answers[0])[0], 0)
        assert child.stdout is not None
        assert len(child.stdout.readlines()) == 1
    finally:
        child.end()


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], psutil.Process]]:
    """In place of this process's: one that nothing was asked of."""
    servers = child_module._Servers()
    monkeypatch.setattr(child_module, "_servers", servers)
    yield lambda: psutil.Process(servers.line.server if servers.line else 0)
    if servers.line is not None:
        servers.line.close()


def test_what_is_expected_is_imported_before_it_is_asked_for(own_server: Callable[[], psutil.Process]) -> None:
    with forked("returns") as (_, without):
        pass
    expect_children("no.such.module", "shisha_rt.no_such_module", IMPORTS_NUMPY)
    until(lambda: own_server().children(), "a spare child")
    with forked("returns") as (_, beside):
        assert beside["modules"] > without["modules"] + 50


def test_nobody_waits_for_what_a_new_server_imports(own_server: Callable[[], psutil.Process]) -> None:
    expect_children(IMPORTS_NUMPY)
    until(lambda: own_server().children(), "a spare child")
    with forked("returns") as (_, before):
        pass
    gone = own_server()
    gone.kill()
    until(lambda: gone.status() == psutil.STATUS_ZOMBIE, "the end of the server")
    with forked("returns") as (child, meanwhile):
        assert meanwhile["parent"] == os.getpid()
        assert meanwhile["modules"] < before["modules"] - 50
        assert child.wait(PATIENCE_S) == 7
    assert own_server() != gone
    until(lambda: own_server().children(), "a spare child again")
    with forked("returns") as (_, after):
        assert after["modules"] > meanwhile["modules"] + 50


def test_a_new_server_that_is_gone_at_once_is_followed_by_another(
    own_server: Callable[[], psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who started a child had an error that is none of the system's: a link to another host hung by it."""
    expect_children(IMPORTS_NUMPY)
    expect = ForkLine.expect

    def too_late(line: ForkLine, modules: Sequence[str]) -> None:
        psutil.Process(line.server).kill()
        until(lambda: psutil.Process(line.server).status() == psutil.STATUS_ZOMBIE, "the end of the server")
        expect(line, modules)

    with monkeypatch.context() as patched:
        patched.setattr(ForkLine, "expect", too_late)
        own_server().kill()
        with forked("returns") as (_, inherited):
            assert inherited["parent"] == os.getpid()
    with forked("returns"):
        pass
    until(lambda: own_server().children(), "a spare child again")


def test_a_server_that_could_not_be_followed_at_once_is_followed_by_one_that_imports_as_much(
    own_server: Callable[[], psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    with forked("returns") as (_, without):
        pass
    expect_children(IMPORTS_NUMPY)

    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, "no process")

    with monkeypatch.context() as patched:
        patched.setattr(ForkLine, "to_new_server", refuse)
        own_server().kill()
        with pytest.raises(OSError, match="no process"):
            start_child(FORKED, "returns")
    with forked("returns"):
        pass
    until(lambda: own_server().children(), "a spare child again")
    with forked("returns") as (_, inherited):
        assert inherited["modules"] > without["modules"] + 50


@pytest.fixture
def spare(own_server: Callable[[], psutil.Process]) -> psutil.Process:
    """The spare child of a new server."""
    expect_children("stages")
    until(lambda: len(own_server().children(recursive=True)) == 2, "a spare child and the process between")
    (between,) = own_server().children()
    (child,) = between.children()
    return child


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_spare_child_that_dies_or_hangs_is_replaced(spare: psutil.Process, number: int) -> None:
    spare.send_signal(number)
    until(lambda: spare.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED), "the signal")
    with forked("returns") as (child, inherited):
        assert child.pid != spare.pid
        assert inherited["parent"] == os.getpid()
    until(lambda: not spare.is_running(), "the end of the spare child")


def test_a_spare_child_that_hangs_ends_with_the_server(
    spare: psutil.Process, own_server: Callable[[], psutil.Process]
) -> None:
    """It stayed for good, as did the process between."""
    (between,) = own_server().children()
    for process in (spare, between, own_server()):
        process.suspend()
    own_server().kill()
    until(lambda: not spare.is_running() and not between.is_running(), "the end of both")


def test_a_server_that_is_stopped_before_it_runs_ends_with_its_process() -> None:
    """Not even the kernel ends it: only a server that runs can ask for that."""
    script = (
        "import os, signal\nfrom shisha_rt.process.child import expect_children, fork_server\n"
        f"expect_children('{FORKED}')\nos.kill(fork_server(), signal.SIGSTOP)\nprint(fork_server())"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    stopped = int(ran.stdout)
    try:
        until(lambda: not psutil.pid_exists(stopped), within_s=10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)


def test_a_child_whose_server_ends_while_it_is_forked_ends_without_a_word() -> None:
    """It went on as if it were the server, and broke there: one more line behind the one that names what is wrong."""
    script = (
        "import os, socket\n"
        "from shisha_rt.process.fork_server import _await_order\n"
        "servers, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "hears_death, child_died = os.pipe()\n"
        "servers.close(), os.close(child_died)\n"
        "_await_order(childs, hears_death)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_the_command_that_is_shown_stays_as_it_is_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path) -> list[str]:
        raise FileNotFoundError(path)

    shown = psutil.Process().cmdline()
    monkeypatch.setattr(fork_server, "stat_fields", gone)
    fork_server._show_command("a.module")
    assert psutil.Process().cmdline() == shown


def test_a_process_that_starts_children_has_a_server_of_its_own() -> None:
    ours, theirs = Channel.pair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        arguments = str(theirs.fileno()), str(os.getpid())
        child = start_child("shisha_rt.daemon.children.profiler", *arguments, pass_fds=[theirs.fileno()])
        try:
            until(lambda: psutil.Process(child.pid).children(), "its server")
            (server,) = psutil.Process(child.pid).children()
            until(lambda: SERVER in command_of(server), "its start")
            until(lambda: _sockets(server) == 1, "it holds its line, and nothing of the child's")
        finally:
            child.end()
    until(lambda: not server.is_running(), "the end of the server")


def _sockets(process: psutil.Process) -> int:
    return sum(str(path.readlink()).startswith("socket:") for path in Path(f"/proc/{process.pid}/fd").iterdir())


def test_servers_hold_on_to_nothing(server: psutil.Process) -> None:
    def held() -> int:
        return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))

    before = held()
    for _ in range(3):
        with forked("returns"):
            pass
    assert held() == before
    assert [process for process in server.children() if process.status() != psutil.STATUS_ZOMBIE] == []


def test_nothing_that_children_run_starts_a_thread_when_it_is_imported() -> None:
    """A fork takes one thread along: of what another had begun, nobody would see the end."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("shisha_rt", "stages")
        for path in sorted((ROOT / package).rglob("*.py"))
        if '__name__ == "__main__"' in path.read_text() and path.stem not in ("__main__", "program_template")
    ]
    assert "stages.worker" in modules
    script = (
        f"import contextlib, importlib, os\nfor name in {modules}:\n"
        "    with contextlib.suppress(ModuleNotFoundError):  # what it needs is an extra\n"
        "        importlib.import_module(name)\n"
        "print(os.listdir('/proc/self/task'))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    assert said.count("'") == 2


def test_a_child_that_is_told_to_end_before_it_runs_ends(server: psutil.Process) -> None:
    """The signal was ignored until then, and lost: a model's version that nobody wanted any more served on."""
    for _ in range(20):
        child = start_child(FORKED, "waits")
        child.terminate()
        try:
            assert child.wait(PATIENCE_S) == -signal.SIGTERM
        finally:
            child.end()


def test_a_server_is_killed_before_its_parent_where_memory_runs_out(server: psutil.Process) -> None:
    """It had the most memory, and after it the daemon, with all frames, was killed while workers started."""
    assert int(Path(f"/proc/{server.pid}/oom_score_adj").read_text()) >= CHILDREN_SCORE


def test_a_child_without_a_process_for_its_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with a traceback."""

    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "no process")

    before = open_descriptors()
    monkeypatch.setattr(os, "fork", refused)
    assert _fork_server(ChildOrder(FORKED, (), (), {}, None)) is None
    assert open_descriptors() == before
