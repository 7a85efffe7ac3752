"""Faults of engines and files, one after the other: `python -m benchmarks faults`.

A real daemon of two places, each with a copy of a network whose output is its input (`tests/serving/poison_model.py`),
while an honest client streams frames and checks answers. Another client sends the frame that a row names. Then unusual
values on SqueezeNet alone, compared with ONNX Runtime on the same file. Then daemons with caches that are damaged,
full, or left by daemons that were killed while compiling: each must start and answer correctly or, if the disk is full,
end with status 1 and one line that says what to do.

- `client`: the result of the client that caused the fault; `status`: the daemon's status of its places then;
- `gap s`, `gap without s`: the longest time between two answers of the honest client, with the fault and before it; its
  frames are one ordered stream, so this includes the longest wait of a frame;
- `lost or wrong`: frames of the honest client, or answers of a daemon after a file's fault;
- `kept`: whether all promises were kept. The exit status is 1 if one was not.
"""

from __future__ import annotations

import fcntl
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import typer
import zmq

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.cache_place import cache_at
from benchmarks.rigs.control_group import MemoryGroup
from shisha_rt.client import Client, ShishaError
from shisha_rt.measure.installed import installed_engines
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.engine import StageEngine
from shisha_rt.plan.plan import Plan, Stage
from tests.serving.daemon_process import DaemonEnded, DaemonProcess, machine_file, serve_command
from tests.serving.identity_model import LAYERS, frame_of, write_identity_model
from tests.serving.load import PAUSE_S, Load
from tests.serving.poison_model import DEATH, FLOATS, INDEX, NAME, TURNS, poison, write_poison_model
from tests.waiting import until

PLACES: Final = ("a", "b")
_WITHIN_S: Final = 60.0
_RESTART_S: Final = 1.0
_PATIENCE_S: Final = 5.0
"""The daemon's time-out for a frame that is being computed, see `daemon/fleet/watch.py`."""
_LEAST_PATIENCE_S: Final = 0.3
_HANGS: Final = "a frame that hangs"
_AROUND: Final = 100
"""Answers of the honest client before and after the fault."""
_TIMED: Final = 15
_MOST_APART: Final = 1e-3
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class _Poison:
    """A harmful frame; `most_s`: how long it may delay other answers."""

    name: str
    order: int
    amount: float
    expected: str
    most_s: float = _RESTART_S
    engine: StageEngine = "onnxruntime"


def _poisons() -> Iterator[_Poison]:
    if platform.machine() == "x86_64":  # others do not trap
        yield _Poison("a frame that kills its worker each time", DEATH, 1, "worker_died")
    yield _Poison(_HANGS, TURNS, 1e15, "worker_died", _PATIENCE_S + _RESTART_S)
    yield _Poison("a frame on which the engine raises", INDEX, 9, "task_failed")
    yield _Poison("a frame that allocates 8 GB at once", FLOATS, 2e9, "task_failed")
    yield _Poison("a frame that allocates 4 EB at once", FLOATS, 1e18, "task_failed")
    if "openvino" in installed_engines():
        # It takes sizes of 32 bits; this is one below 0.
        yield _Poison("a frame on which OpenVINO raises", FLOATS, 3e9, "task_failed", engine="openvino")
        yield _Poison("a frame that has OpenVINO allocate 4 GB", FLOATS, 1e9, "task_failed", engine="openvino")


def faults(
    model: str = typer.Option("squeezenet", help="The network of the zoo for odd values."),
    rounds: int = typer.Option(5, min=1, help="Of daemons that are killed while they compile."),
) -> None:
    """Poison frames, odd values, damaged and full caches: what clients see; status 1 if a promise is broken."""
    report = Report("faults")
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        path, harmless = write_poison_model(folder), write_identity_model(folder)  # trials of engines use any frames
        rows: list[Row] = []
        for of_some in (
            _of_frames(folder, path),
            _of_memory(folder, path),
            _of_values(folder, resolve_model(f"zoo:{model}")),
            damaged(folder / "damaged", harmless),
            disk_full(folder / "full", harmless),
            killed_while_compiling(folder / "killed", harmless, rounds),
        ):
            for row in of_some:
                report.step(f"{row['fault']}: {row['client']}")
                rows.append(row)
    zmq.Context.instance().term()
    report.keep("Faults", rows)
    if any(row["kept"] != "yes" for row in rows):
        raise typer.Exit(1)


# --- frames ---------------------------------------------------------------------------------------------------


def _of_frames(folder: Path, path: Path) -> Iterator[Row]:
    options = ("--machine", machine_file(folder, PLACES), "--max-worker-bytes", 1024 * _MIB)
    with DaemonProcess(folder, path, *options, is_program=True) as daemon:
        yield from _poisoned(daemon, _poisons())
    named = f"{_HANGS}, with --hang-s {_LEAST_PATIENCE_S:g}"
    with DaemonProcess(folder, path, *options, "--hang-s", _LEAST_PATIENCE_S, is_program=True) as daemon:
        yield from _poisoned(daemon, [_Poison(named, TURNS, 1e15, "worker_died")])


def _of_memory(folder: Path, path: Path) -> Iterator[Row]:
    """Fault of memory. `--max-worker-bytes` is more than is available, so that the kernel has to kill a worker."""
    fault = _Poison("a frame that takes 1 GiB, all there is", FLOATS, 1e9, "memory ran out", _PATIENCE_S + _RESTART_S)
    options = ("--machine", machine_file(folder, PLACES), "--max-worker-bytes", 2**20 * _MIB)
    try:
        group = MemoryGroup(1024 * _MIB)
    except OSError as error:
        yield fault_row(fault.name, f"not tried: {error}", "", 0)
        return
    with group:
        with group.entered():
            process = DaemonProcess(folder, path, *options, is_program=True)
        with process as daemon:
            yield from _poisoned(daemon, [fault])


def _poisoned(daemon: DaemonProcess, poisons: Iterable[_Poison]) -> Iterator[Row]:
    without_s = 0.0
    for fault in poisons:
        for place in PLACES:
            daemon.control.call("place_set", place=place, up=True)  # its deaths of before are forgiven
        daemon.wait_for_workers()
        copies = Stage(((0, LAYERS - 1),), tuple((place,) for place in PLACES), engine=fault.engine)
        assert daemon.control.set_plan(Plan((copies,)))["outcome"] == "live"
        without_s = without_s or _honest(daemon, lambda: "")[1].longest_gap_s
        before = _restarts(daemon)
        said, load = _honest(daemon, partial(_saw, daemon, fault))
        died = _restarts(daemon) - before
        yield fault_row(
            fault.name,
            said,
            f"{died} restarts{_last_death(daemon) if died else ''}",
            len(load.faults) + load.codes.total() + load.sent - load.answered,
            gap_s=load.longest_gap_s,
            without_s=without_s,
            kept=fault.expected in said and load.longest_gap_s <= without_s + fault.most_s,
        )


def _honest(daemon: DaemonProcess, meanwhile: Callable[[], str]) -> tuple[str, Load]:
    """The result of `meanwhile`, and the honest client that ran before, during and after it."""
    with Load(daemon.endpoint, streams=1, depth=6, model_name=NAME, pause_s=PAUSE_S) as load:
        load.wait_for_answers(_AROUND)
        said = meanwhile()
        load.wait_for_answers(_AROUND)
    return said, load


def _saw(daemon: DaemonProcess, fault: _Poison) -> str:
    with Client(daemon.endpoint, timeout_s=_WITHIN_S) as client:
        try:
            client.infer(poison(fault.order, fault.amount))
        except ShishaError as error:
            return f"{error.code} {error.kind}: {error.message}"
    return "an answer"


def _restarts(daemon: DaemonProcess) -> int:
    return sum(place["restarts"] for place in daemon.control.status()["places"])


def _last_death(daemon: DaemonProcess) -> str:
    last = [place["last_error"] for place in daemon.control.status()["places"] if place["last_error"]]
    return f"; last death: {last[-1]}" if last else ""


# --- values ---------------------------------------------------------------------------------------------------


def _of_values(folder: Path, path: Path) -> Iterator[Row]:
    """Unusual values on one place, with each installed engine: its answers, and its time for an ordinary frame."""
    plain = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (tensor,) = plain.get_inputs()
    shape = tuple(size if isinstance(size, int) else 1 for size in tensor.shape)
    ordinary = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with DaemonProcess(folder, path, "--machine", machine_file(folder, PLACES[:1]), is_program=True) as daemon:
        daemon.wait_for_workers()
        layers = daemon.control.status()["model"]["layers"]
        for engine in ("onnxruntime", "openvino"):
            if engine not in installed_engines():
                continue
            with _engine_live(daemon, layers, engine) as why:
                if why:
                    yield fault_row(f"odd values, {engine}", f"not tried: {why}", "", 0)
                    continue
                for name, frame in _odd(ordinary).items():
                    yield _odd_row(daemon, f"{name}, {engine}", plain, tensor.name, frame, ordinary)


@contextmanager
def _engine_live(daemon: DaemonProcess, layers: int, engine: StageEngine) -> Iterator[str]:
    """Make a plan with an engine live; return why that fails, or nothing."""
    settled = daemon.control.set_plan(Plan((Stage(((0, layers - 1),), ((PLACES[0],),), engine=engine),)))
    yield "" if settled["outcome"] == "live" else settled["reason"]


def _odd(ordinary: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
    one_nan, one_inf, both = ordinary.copy(), ordinary.copy(), ordinary.copy()
    one_nan.reshape(-1)[7] = np.nan
    one_inf.reshape(-1)[7] = np.inf
    both.reshape(-1)[7:9] = np.inf, -np.inf
    return {
        "a NaN": one_nan,
        "all NaN": np.full_like(ordinary, np.nan),
        "an infinity": one_inf,
        "infinities of both signs": both,
        "all denormal": ordinary * np.float32(1e-39),
    }


def _odd_row(
    daemon: DaemonProcess, name: str, plain: Any, tensor: str, frame: npt.NDArray[Any], ordinary: npt.NDArray[Any]
) -> Row:
    taken: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * _TIMED):
        odd = bool(turn % 2)
        begun_s = time.perf_counter()
        answer = daemon.control.infer(frame if odd else ordinary).output
        taken[odd].append(time.perf_counter() - begun_s)
    ratio = statistics.median(taken[True]) / statistics.median(taken[False])
    (right,) = plain.run(None, {tensor: frame})
    finite = right[np.isfinite(right)]
    within = _MOST_APART * float(np.abs(finite).max(initial=0.0)) + 1e-30
    alike = np.allclose(answer, right, rtol=0, atol=within, equal_nan=True)
    nans = f"{np.isnan(answer).sum()} NaN of {answer.size}"
    said = "as ONNX Runtime alone" if alike else f"{nans}, ONNX Runtime alone {np.isnan(right).sum()}"
    usual = name.endswith("onnxruntime")
    row = fault_row(name, said, "", 0, kept=alike or not usual)
    return {**row, "time over ordinary": ratio}


# --- files ------------------------------------------------------------------------------------------------------------


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
            yield _file_row(f"{of}{file.name} {how}", said, stderr, bad)
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
        yield _file_row(f"a disk of {pages * _PAGE // 1024} KiB", said, stderr, bad)


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
        yield _file_row(
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


def _file_row(fault: str, client: str, stderr: str, bad: int) -> Row:
    lines = [line for line in stderr.splitlines() if not line.startswith("starting") and "are shared" not in line]
    return fault_row(fault, tidied(client), tidied("; ".join(lines)[-_MOST_SAID:]), bad, kept="Traceback" not in stderr)


def tidied(text: str) -> str:
    """A text without times, folders of this run, and digests."""
    for pattern in (r"\d{4}-\d\d-\d\d [\d:,]+ ", r"\S*/(?=shisha-rt/)", r"[0-9a-f]{64}"):
        text = re.sub(pattern, "", text)
    return text
