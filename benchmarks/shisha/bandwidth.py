"""Shisha's first figures (2022, section 2, Figures 1 and 2): STREAM's triad under assignments of threads and data.

The paper ran it on a Knights Landing, with a memory of high bandwidth (HBM) and DRAM of a quarter of that: 19 and 31 GB
of data, 15 of them in HBM, [X+Y] threads on the two. Here there are two parts:

- **This host**, measured: the triad in numpy on one and two pinned threads. More cannot be decided with one memory.
- **Two emulated memories** (`stages/emulate`): a thread is a place of 0.015 of a core whose worker runs the triad, as
  an ONNX network, repeatedly, and all places of a memory share its emulated bandwidth. All places of an assignment run
  at the same time. Bytes per second of each memory are measured; seconds for a data size are those of the memory that
  takes the longest for its part, at these rates. They are compared with the prediction by the description:
  min(threads times the rate of one alone, bandwidth).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import typer

from benchmarks.live.emulation import triad
from benchmarks.report.page import Claims, Statement, holds
from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread, number
from benchmarks.rigs.stage_rig import Loaded, StageRig, stage_rig
from shisha_rt.machine.config.machine_file import check_runnable, parse_machine
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model

Vector: TypeAlias = npt.NDArray[np.float64]

MEMORIES: Final[Mapping[str, float]] = {"hbm": 2e9, "ddr": 0.5e9}
"""Bytes per second, 4 to 1 as in the paper; the absolute values are ours, such that some threads saturate each."""
THREADS: Final = (1, 2, 4, 8)
"""Numbers of threads on each memory, for the paper's 16 to 128 on HBM and 2 to 16 on DRAM."""
IN_HBM_GB: Final = 15
SIZES_GB: Final = (19, 31)
_SPEED: Final = 0.015
_ELEMENTS: Final = 2**19
_SLOTS: Final = 2
_AS_GOOD: Final = 1.05
"""Seconds that differ by less than this factor are equal."""
_HOST_ELEMENTS: Final = 2**24
"""Elements of each array of a thread, 128 MiB: STREAM requires four times the last-level cache."""
_BLOCK: Final = 2**15
"""Elements of a piece: three of them stay in a core's cache between numpy's two steps of a triad, and a step takes much
longer than passing Python's lock to the other thread."""
_BYTES_EACH: Final = 24
_ROUNDS: Final = 40
_OWN_CORE: Final = 0.9
"""A round counts if each thread had its core for at least this fraction of the time."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """[X+Y] threads on the two emulated memories, and bytes per second of each; X = 0: all data are in DDR."""

    hbm_threads: int
    ddr_threads: int
    hbm_bytes_per_s: float
    ddr_bytes_per_s: float

    @property
    def name(self) -> str:
        return f"[{self.hbm_threads}+{self.ddr_threads}]"

    def seconds(self, size_gb: float) -> float:
        """Seconds until both memories are done with their parts of the data."""
        in_hbm_gb = IN_HBM_GB if self.hbm_threads else 0
        in_hbm_s = 1e9 * in_hbm_gb / self.hbm_bytes_per_s if in_hbm_gb else 0.0
        return max(in_hbm_s, 1e9 * (size_gb - in_hbm_gb) / self.ddr_bytes_per_s)

    def row(self, predicted: Assignment) -> Row:
        seconds = {f"{size} GB, s": self.seconds(size) for size in SIZES_GB}
        foretold = {f"{size} GB, predicted s": predicted.seconds(size) for size in SIZES_GB}
        return {
            "emulated": "yes",
            "threads on hbm + ddr": self.name,
            "hbm GB/s": self.hbm_bytes_per_s / 1e9,
            "ddr GB/s": self.ddr_bytes_per_s / 1e9,
            **seconds,
            **foretold,
        }


# --- two emulated memories --------------------------------------------------------------------------------------------


def two_memories() -> Machine:
    """Eight places of 0.015 of a core on each memory, on two cores."""
    text = "".join(
        f'[[memory]]\nname = "{name}"\nbandwidth_bytes_per_s = {bandwidth}\n' for name, bandwidth in MEMORIES.items()
    )
    text += "".join(
        f'[[place]]\nname = "{name}{i}"\ncores = [{i % 2}]\nspeed = {_SPEED}\nmemory = "{name}"\n'
        for name in MEMORIES
        for i in range(max(THREADS))
    )
    machine = parse_machine(text, name="two memories", source="benchmarks/shisha/bandwidth.py")
    check_runnable(machine)
    return machine


def assignments(seconds: float) -> tuple[list[Assignment], list[Assignment]]:
    """Assignments with all data in DDR, for each number of threads, then with both memories; measured and predicted."""
    machine = two_memories()
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_model(triad(Path(folder), _ELEMENTS))
    with stage_rig(compiled, machine, _SLOTS) as rig:
        last = len(compiled.layers) - 1
        stages = [rig.load(worker, 0, last) for worker in range(len(machine.places))]
        hbm, ddr = stages[: max(THREADS)], stages[max(THREADS) :]
        alone = _bytes_per_s(rig, hbm[:1], seconds)[0]
        pairs = [(x, y) for x in (0, *THREADS) for y in THREADS]
        measured = [Assignment(x, y, *_both(rig, hbm[:x], ddr[:y], seconds)) for x, y in pairs]
    return measured, [predicted(x, y, alone) for x, y in pairs]


def predicted(hbm_threads: int, ddr_threads: int, one_bytes_per_s: float) -> Assignment:
    """The prediction by the description: rates of threads add up to at most the bandwidth."""
    rates = (
        min(threads * one_bytes_per_s, bandwidth)
        for threads, bandwidth in zip((hbm_threads, ddr_threads), MEMORIES.values(), strict=True)
    )
    return Assignment(hbm_threads, ddr_threads, *rates)


def _both(rig: StageRig, hbm: Sequence[Loaded], ddr: Sequence[Loaded], seconds: float) -> tuple[float, float]:
    """Bytes per second of each memory while all these threads run."""
    rates = _bytes_per_s(rig, [*hbm, *ddr], seconds)
    return sum(rates[: len(hbm)]), sum(rates[len(hbm) :])


def _bytes_per_s(rig: StageRig, stages: Sequence[Loaded], seconds: float) -> list[float]:
    rates = rig.at_once(stages, seconds)
    return [stage.prepared.frame_bytes / rate.frame_s for stage, rate in zip(stages, rates, strict=True)]


# --- this host --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamRound:
    """`own_core`: the fraction of time for which threads had their cores, the least of all threads."""

    bytes_per_s: float
    own_core: float


def stream_round(cores: Sequence[int], elements: int, passes: int) -> StreamRound:
    """STREAM's triad in float64 with a thread on each of `cores`, each with its own arrays: a = b + q c.

    Each element counts as 24 bytes, as in STREAM, although a processor also reads a line before it writes it.
    """
    gate = threading.Barrier(len(cores) + 1)
    cpu_s: list[float] = []
    threads = [
        threading.Thread(target=_stream, args=(core, elements, passes, gate, cpu_s), daemon=True) for core in cores
    ]
    for thread in threads:
        thread.start()
    gate.wait()
    started = time.perf_counter()
    gate.wait()
    took_s = time.perf_counter() - started
    for thread in threads:
        thread.join()
    return StreamRound(len(cores) * passes * elements * _BYTES_EACH / took_s, min(cpu_s) / took_s)


def _stream(core: int, elements: int, passes: int, gate: threading.Barrier, cpu_s: list[float]) -> None:
    os.sched_setaffinity(0, {core})  # of this thread only
    a, b, c = (np.full(elements, value) for value in (0.0, 1.0, 2.0))
    _pass(a, b, c)
    gate.wait()
    started = time.thread_time()
    for _ in range(passes):
        _pass(a, b, c)
    cpu_s.append(time.thread_time() - started)
    gate.wait()


def _pass(a: Vector, b: Vector, c: Vector) -> None:
    for start in range(0, len(a), _BLOCK):
        piece = slice(start, start + _BLOCK)
        np.multiply(c[piece], 3.0, out=a[piece])
        np.add(a[piece], b[piece], out=a[piece])


def host_rows(rounds: int = _ROUNDS, elements: int = _HOST_ELEMENTS) -> Iterator[Row]:
    """One thread and two, in turns: the best round, as in STREAM, of those in which no other process had the cores."""
    cores = sorted(usable_cores())[:2]
    by_count: dict[int, list[StreamRound]] = {count + 1: [] for count in range(len(cores))}
    for _ in range(rounds):
        for count, tried in by_count.items():
            tried.append(stream_round(cores[:count], elements, passes=3))
    for count, tried in by_count.items():
        rates = [each.bytes_per_s / 1e9 for each in tried if each.own_core >= _OWN_CORE]
        about = {"emulated": "no", "threads": count, "memories": memory_nodes(), "rounds": rounds}
        best = {"best GB/s": max(rates, default=None), "GB/s": Spread.of(rates) if rates else None}
        yield {**about, "undisturbed": len(rates), **best}


def memory_nodes() -> int:
    """Number of memory nodes of this host, by the kernel."""
    return max(1, len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))))


# --- the paper's statements -------------------------------------------------------------------------------------------

_stated: Final = Claims.beside(__file__, "ours").stated
_UNTRIED: Final = "cannot be tried here"


def statements(measured: Sequence[Assignment], host_gb_per_s: Sequence[float]) -> list[Statement]:
    """Statements from all assignments, and from one and two threads on this host (or one only)."""
    alone = [it for it in measured if not it.hbm_threads]
    both = [it for it in measured if it.hbm_threads]
    least = {size: min(both, key=lambda it, size=size: it.seconds(size)) for size in SIZES_GB}  # type: ignore[misc]
    in_ddr = {size: min(it.seconds(size) for it in alone) for size in SIZES_GB}
    fewest = {size: _fewest(both, size) for size in SIZES_GB}
    (most,) = (it for it in both if it.hbm_threads == it.ddr_threads == max(THREADS))
    full = most.hbm_bytes_per_s, most.ddr_bytes_per_s
    by_threads = [next(it.ddr_bytes_per_s for it in alone if it.ddr_threads == count) for count in THREADS]
    quickest = "; ".join(
        f"{size} GB: {least[size].seconds(size):.1f} s with {least[size].name}, {in_ddr[size]:.1f} s in DDR"
        for size in SIZES_GB
    )
    best = ", ".join(f"[{IN_HBM_GB}-{size - IN_HBM_GB}] GB: {it.name}" for size, it in fewest.items())
    over_most = ", ".join(f"{size} GB: {it.seconds(size) / most.seconds(size):.2f}" for size, it in fewest.items())
    return [
        _stated(
            "hbm",
            f"emulated: {full[0] / full[1]:.2f} ({full[0] / 1e9:.2f} and {full[1] / 1e9:.2f} GB/s)",
            holds(abs(full[0] / full[1] / 4 - 1) < _AS_GOOD - 1),
        ),
        _stated(
            "saturated",
            f"emulated, DDR with {', '.join(map(str, THREADS))} threads: "
            f"{', '.join(f'{rate / 1e9:.2f}' for rate in by_threads)} GB/s",
            holds(by_threads[0] * _AS_GOOD < by_threads[1] and by_threads[-1] < by_threads[-2] * _AS_GOOD),
        ),
        _on_this_host(host_gb_per_s),
        _stated(
            "both memories",
            f"emulated: {quickest}",
            holds(all(least[size].seconds(size) * _AS_GOOD < in_ddr[size] for size in SIZES_GB)),
        ),
        _stated("cache", _UNTRIED, "untried"),
        _stated("real memories", _UNTRIED, "untried", memories=memory_nodes()),
        _stated(
            "best threads",
            f"emulated, the fewest threads within 5% of the least: {best}",
            holds(len({it.name for it in fewest.values()}) > 1),
        ),
        _stated(
            "fewer threads",
            f"emulated, the fewest over the most {most.name}: {over_most}",
            holds(all(it.seconds(size) * _AS_GOOD < most.seconds(size) for size, it in fewest.items())),
        ),
    ]


def _on_this_host(gb_per_s: Sequence[float]) -> Statement:
    if len(gb_per_s) < 2:
        why = "one core may be used here, or others had them in every round"
        return _stated("this host", _UNTRIED, "untried", why=why)
    alone, both = gb_per_s
    text = f"this host: {alone:.1f} and {both:.1f} GB/s, {both / alone:.2f} times"
    return _stated("this host", text, holds(both > alone * _AS_GOOD), why="one core may fill the memory already")


def _fewest(choices: Sequence[Assignment], size_gb: float) -> Assignment:
    """The assignment of the fewest threads whose seconds are within 5% of the least."""
    least_s = min(it.seconds(size_gb) for it in choices)
    good = [it for it in choices if it.seconds(size_gb) <= least_s * _AS_GOOD]
    return min(good, key=lambda it: (it.hbm_threads + it.ddr_threads, it.seconds(size_gb)))


def bandwidth(
    seconds: Annotated[float, typer.Option(min=0.2, help="Length of each emulated measurement.")] = 4.0,
) -> None:
    """Shisha's Figures 1 and 2: STREAM's triad on this host, and on two emulated memories."""
    report = Report("bandwidth")
    host = list(host_rows())
    report.step("two emulated memories")
    measured, foretold = assignments(seconds)
    rows = [taken.row(other) for taken, other in zip(measured, foretold, strict=True)]
    best = [number(row, "best GB/s") for row in host if row["best GB/s"] is not None]
    stated = [statement.row() for statement in statements(measured, best)]
    report.keep("STREAM's triad in numpy on this host", host, name="bandwidth_host")
    report.keep("STREAM's triad on two emulated memories", rows)
    report.keep("The paper's statements and ours", stated, name="bandwidth_statements")
