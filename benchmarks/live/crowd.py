"""Twenty clients of which few behave: `python -m benchmarks crowd`.

Five that send one frame at a time are served alone first, and then beside five that send all they can and ten that
never read an answer. What the polite ones are refused, how long they wait, and how much memory the daemon takes.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from typing import Annotated, Final

import psutil
import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.cpu_time import cpu_time

_MIB: Final = 2**20
_SAMPLE_S: Final = 0.02


class _Memory:
    """The most that a process has had while this is open, private and in all."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self.most_bytes = self.rss_bytes = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.rss_bytes = self._process.memory_info().rss
            self.most_bytes = max(self.most_bytes, self.rss_bytes)


def _clients(endpoint: str, manner: str, count: int) -> contextlib.AbstractContextManager[tuple[ChildProcess, object]]:
    return child_process("benchmarks.rigs.crowd_process", endpoint=endpoint, manner=manner, count=count)


def crowd(
    model: Annotated[str, typer.Option(help="A model, as `shisha-rt` takes it.")] = "zoo:squeezenet",
    machine: Annotated[str, typer.Option(help="A machine file, or a shipped name.")] = "this-machine",
    seconds: Annotated[float, typer.Option(help="Of each part.")] = 10.0,
) -> None:
    """Five polite clients alone, and beside five greedy ones and ten that never read."""
    with contextlib.ExitStack() as closing:
        daemon, up = closing.enter_context(
            child_process("benchmarks.rigs.daemon_process", model=model, machine=machine, endpoint="tcp://127.0.0.1:0")
        )
        polite, _ = closing.enter_context(_clients(up["endpoint"], "polite", 5))
        polite.ask(seconds=1.0)
        start_bytes = psutil.Process(daemon.pid).memory_info().rss
        rows: list[Row] = []
        for who, others in (("5 polite", ()), ("5 polite, 5 greedy, 10 deaf", (("greedy", 5), ("deaf", 10)))):
            with contextlib.ExitStack() as beside, _Memory(daemon.pid) as memory:
                bursts = []
                for manner, count in others:
                    client, _ = beside.enter_context(_clients(up["endpoint"], manner, count))
                    bursts.append(threading.Thread(target=client.ask, kwargs={"seconds": seconds + 1.0}))
                for burst in bursts:
                    burst.start()
                before = cpu_time(daemon.pid)
                found = polite.ask(seconds=seconds)
                used = cpu_time(daemon.pid).since(before)
                for burst in bursts:
                    burst.join()
            latency_ms = sorted(taken_s * 1e3 for taken_s in found["latency_s"])
            rows.append(
                {
                    "clients": who,
                    "polite answers": len(latency_ms),
                    "polite refused": found["refused"],
                    "p50 ms": statistics.median(latency_ms),
                    "p99 ms": latency_ms[int(0.99 * len(latency_ms))],
                    "loop CPU": used.main_s / seconds,
                    "RSS at the start MiB": start_bytes / _MIB,
                    "RSS at most above it MiB": (memory.most_bytes - start_bytes) / _MIB,
                }
            )
    about = facts(f"crowd --model {model} --machine {machine} --seconds {seconds:g}")
    show(f"a crowd of clients, {model}, {machine}", rows, ["the loop's CPU: of a core"])
    save_csv("crowd", rows, about)
