"""A daemon, a process of its own, and a check that nothing of it is left afterwards."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import psutil

from shisha_rt.client import Client
from shisha_rt.process.child import Child
from tests.commands import command_of
from tests.serving.daemon_forks import fork_daemon
from tests.serving.forked_daemon import MARK
from tests.waiting import PATIENCE_S, until

PATIENCE_MS: Final = 60_000
_COMMAND: Final = (sys.executable, "-c", "import sys; from shisha_rt.cli.app import main; sys.exit(main())")
_RECORD_BYTES: Final = 64
_OF_A_CLUSTER: Final = ("shisha_rt.hosts.process", "ray::", "/ray/")


class DaemonEnded(AssertionError):
    """It never was ready."""

    def __init__(self, status: int, stderr: str) -> None:
        super().__init__(f"the daemon ended with status {status}; on stderr: {stderr}")
        self.status = status
        self.stderr = stderr


class DaemonProcess:
    """`shisha-rt serve` with `arguments`, and a runtime folder under `folder`. Ready when the constructor returns.

    Leaving the context stops the daemon, if it still runs, and asserts that it went well and left nothing. `keys`: an
    operator's secret file and the daemon's public one, if it asks for keys. `within`: a command that becomes another.
    `is_program`: it is started as its user starts it, and imports all that it needs; else it is forked from a process
    that has done so, in a third of the time.

    Raises DaemonEnded where there is none to be had.
    """

    extra_keys: frozenset[str] = frozenset({"http", "grpc"})

    def __init__(
        self,
        folder: Path,
        *arguments: object,
        endpoint: str = "tcp://127.0.0.1:0",
        ready_within_s: float = PATIENCE_S,
        keys: tuple[Path | None, Path | None] = (None, None),
        within: Sequence[str] = (),
        is_program: bool = False,
    ) -> None:
        self.folder = folder
        self.runtime = folder / "runtime"
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        self._mark = uuid.uuid4().hex
        self._stderr_path = folder / f"stderr-{self._mark}"
        command = serve_command(*arguments, endpoint=endpoint)
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), MARK: self._mark}
        with self._stderr_path.open("wb") as stderr:
            forked = None
            if not is_program and not within:
                forked = fork_daemon(command[len(_COMMAND) :], stderr.fileno(), environment)
            self.popen: Child | subprocess.Popen[bytes] = forked or subprocess.Popen(
                [*within, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        try:
            ready = json.loads(self._first_line(ready_within_s))
            assert ready.keys() - self.extra_keys == {"ready", "endpoint", "metrics"}
            assert ready["ready"] is True
        except BaseException:
            self._end_everything()
            raise
        self.endpoint: str = ready["endpoint"]
        self.metrics: str = ready["metrics"]
        self.http: list[str] = ready.get("http", [])
        self.grpc: list[str] = ready.get("grpc", [])
        self.control = Client(self.endpoint, timeout_s=PATIENCE_S, secret_key=keys[0], server_key=keys[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.popen.poll() is None:
                assert self.terminate() == 0, self.stderr()
                self.assert_nothing_left()
        finally:
            self._end_everything()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def local_socket(self) -> str:
        """Path of the socket at which it lends memory and gives direct lines."""
        path: str = self.control.metadata()["server"]["shared_memory_socket"]
        return path

    def stderr(self) -> str:
        return self._stderr_path.read_text(errors="replace")

    def complaints(self) -> list[str]:
        return complaints_of(self.stderr())

    # --- what runs --------------------------------------------------------------------------------------------

    def worker_pids(self) -> dict[str, int | None]:
        """Place -> pid of its worker, or None while it has none."""
        return {place["name"]: place["pid"] for place in self.control.status()["places"]}

    def wait_for_workers(self, within_s: float = PATIENCE_S) -> dict[str, int]:
        """The pids once every place that wants one has a connected worker."""
        pids: dict[str, int] = {}

        def all_up() -> bool:
            places = [place for place in self.control.status()["places"] if place["state"] not in ("out", "released")]
            pids.clear()
            pids.update((place["name"], place["pid"]) for place in places if place["state"] == "up")
            return len(pids) == len(places)

        until(all_up, "a worker on every place", within_s=within_s)
        return pids

    @contextlib.contextmanager
    def workers_stopped(self) -> Iterator[None]:
        """What comes meanwhile is not computed. A worker that is ended, as it hangs, is followed by another."""
        pids = self.wait_for_workers().values()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def kill_worker(self, *pids: int) -> None:
        """Kill workers, and wait until the daemon knows."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.wait_for_deaths(*pids)

    def wait_for_deaths(self, *pids: int) -> None:
        until(lambda: not set(self.worker_pids().values()) & set(pids), "the deaths")

    def board(self, place_count: int) -> Board:
        return Board(self.pid, place_count)

    def processes(self) -> list[psutil.Process]:
        """Every living process that descends from this daemon, whoever its parent is by now."""
        mark = f"{MARK}={self._mark}\0".encode()
        living = []
        for pid in psutil.pids():
            if mark in _environment(pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    living.append(psutil.Process(pid))
        return living

    def running(self, module: str) -> list[psutil.Process]:
        """Those of its processes that run the module."""
        return [process for process in self.processes() if module in command_of(process)]

    # --- the end ----------------------------------------------------------------------------------------------

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Send a signal to the daemon and wait for its end; returns the exit status."""
        self.assert_no_named_memory()
        self.popen.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        self.control.close()
        return self.popen.wait(PATIENCE_S)

    def assert_no_named_memory(self) -> None:
        """Shared memory without a name cannot be left behind: nobody maps anything that has one.

        But for a Ray cluster and who joins it: its store is a file, and its own affair.
        """
        for process in self.processes():
            command = _read(Path(f"/proc/{process.pid}/cmdline"))
            if any(words in command for words in _OF_A_CLUSTER):
                continue
            maps = _read(Path(f"/proc/{process.pid}/maps"))
            assert "/dev/shm/" not in maps
            assert "SYSV" not in maps

    def assert_no_process(self) -> None:
        until(lambda: not self.processes(), "the end of every process of the daemon", otherwise=self._about_processes)

    def _about_processes(self) -> str:
        about = []
        for process in self.processes():
            at = Path(f"/proc/{process.pid}")
            state = [line for line in _read(at / "status").splitlines() if line.startswith(("State", "PPid"))]
            about.append(f"{process.pid}, {state}, waits in {_read(at / 'wchan')}: {command_of(process)}")
        return "\n".join(about)

    def assert_nothing_left(self) -> None:
        self.assert_no_process()
        left = leftovers(self.runtime)
        assert left == [], f"{left}: {self.stderr()}"

    def _first_line(self, within_s: float) -> bytes:
        assert self.popen.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.popen.stdout, selectors.EVENT_READ)
            assert selector.select(within_s), f"the daemon says nothing; on stderr: {self.stderr()}"
        line = self.popen.stdout.readline()
        if not line:
            raise DaemonEnded(self.popen.wait(PATIENCE_S), self.stderr())
        return line

    def _end_everything(self) -> None:
        if hasattr(self, "control"):
            self.control.close()
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        for process in self.processes():
            process.kill()
        if isinstance(self.popen, Child):
            self.popen.end()
        elif self.popen.stdout is not None:
            self.popen.stdout.close()


class Board:
    """The board of a daemon's arena, read through /proc: what each worker is computing right now."""

    def __init__(self, daemon_pid: int, place_count: int) -> None:
        descriptors = Path(f"/proc/{daemon_pid}/fd")
        path = next(fd for fd in descriptors.iterdir() if "shisha-rt-arena" in str(fd.readlink()))
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, place_count * _RECORD_BYTES, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._records = np.frombuffer(self._map, np.uint64).reshape(place_count, -1)

    def running(self, place: int) -> int | None:
        """The frame that the worker on the place with this index is computing."""
        return int(self._records[place, 1]) - 1 if self._records[place, 1] else None

    def wait_until_running(self, place: int) -> int:
        end_s = time.monotonic() + PATIENCE_S
        while (frame := self.running(place)) is None:
            assert time.monotonic() < end_s, f"no frame runs on place {place}"
        return frame


def complaints_of(stderr: str) -> list[str]:
    """What a daemon wrote but for how long its start goes on, as it tells each ten seconds."""
    return [line for line in stderr.splitlines() if not line.startswith("starting for ")]


def serve_command(*arguments: object, endpoint: str = "tcp://127.0.0.1:0") -> list[str]:
    """Without a tuner, unless `arguments` ask for one: here the tests propose the plans."""
    options = ["--strategy", "seed", "--endpoint", endpoint, "--metrics", "127.0.0.1:0"]
    return [*_COMMAND, "serve", *options, *map(str, arguments)]


def leftovers(runtime: Path) -> list[str]:
    """Everything under a runtime folder: a daemon needs nothing there that has a name."""
    return sorted(str(path.relative_to(runtime)) for path in runtime.rglob("*"))


def machine_file(folder: Path, places: Sequence[str]) -> Path:
    """Places that take turns on the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    path = folder / f"shared-{len(places)}.toml"
    path.write_text(
        "".join(
            f'[[place]]\nname = "{name}"\ncores = [{cores[i % len(cores)]}]\nshared = true\n'
            for i, name in enumerate(places)
        )
    )
    return path


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""  # gone, or somebody else's; of a zombie, it is empty


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
