"""Five times as many frames as can be answered, over a thousand connections: `python -m benchmarks overload`.

A real daemon; half of the connections go over TCP to its ZeroMQ endpoint, half over HTTP. Of each half a tenth never
reads, a tenth reads a byte now and then, a fifth is half open; the others are honest. Together they send five times
the capacity, which is the rate of one ZeroMQ client that always has frames in flight. Besides, a well-behaved client
sends one frame at a time, and another requests `status` ten times a second.

- `goodput / capacity`: answers with a result that honest clients read per second, over capacity; also by tenths of the
  time. The clients share the cores with the daemon: `capacity beside as much CPU` is the capacity while other processes
  use as much of the cores as all clients did.
- `wait that the queue allows`: the most frames that the daemon holds, over goodput; waits should hardly be longer.
- `lost`, `doubled or unasked`, `wrong`: answers that break a promise, as seen by honest clients.
- `cut off`: connections that the daemon has closed, by the clients' manner; they connect again.
- `growth MiB`: private memory in the last fifth over that in the first, from a minute after the start (or a fifth).
- `left`: connections of the two processes after all clients have gone; descriptors more than before they came.

The exit status is 1 if an answer was lost, doubled or wrong, the daemon ended, a connection was left, or memory grew
without limit; it does not depend on timing.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import numpy as np
import psutil
import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread, listed, percentile
from benchmarks.rigs.child_process import ChildProcess, child_process
from benchmarks.rigs.control import is_watching
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.many_process import DEAF, HALF, HONEST, TRICKLING
from benchmarks.rigs.resources import cpu_time, private_mib, whole_cpu_s
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client, ShishaError
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import NAME, write_identity_model

ZEROMQ, HTTP, HTTP_PROCESS = "ZeroMQ", "HTTP", "HTTP process"
_TIMES: Final = 5.0
_IN_FLIGHT: Final = 16
_CAPACITY_S: Final = 5.0
_TUNING_S: Final = 60.0
_STATUS_EVERY_S: Final = 0.1
_POLITE_EVERY_S: Final = 0.25
_LEAD_S: Final = 0.5
_FILL: Final = 150
"""Requests of each client that never reads, before the measured time, so that the daemon's buffers for them are full
early."""
_CALM_S: Final = 0.03
_LEFT_S: Final = 90.0
_TIMEOUT_S: Final = 120.0
_GROWTH_MIB: Final = 48
"""More counts as growth without limit, as all that the daemon keeps for clients is there after the first minute."""
_PIECES: Final = 10


@dataclass(slots=True)
class _Watched:
    """Observations of the daemon from outside, and results of the well-behaved client."""

    daemon: DaemonProcess
    status_s: list[float] = field(default_factory=list)
    polite_s: list[float] = field(default_factory=list)
    polite_codes: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[float, str, float]] = field(default_factory=list)
    http_pids: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        ending = threading.Event()
        threads = [
            threading.Thread(target=self._go_on, args=(look, every_s, ending))
            for look, every_s in (
                (self._ask_status, _STATUS_EVERY_S),
                (self._be_polite, _POLITE_EVERY_S),
                (self._sample, 1.0),
            )
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ending.set()
            for thread in threads:
                thread.join()

    def _go_on(self, look: Callable[[Client], None], every_s: float, ending: threading.Event) -> None:
        try:
            with Client(self.daemon.endpoint, timeout_s=_TIMEOUT_S, share=False) as client:
                while not ending.wait(every_s):
                    look(client)
        except Exception as error:
            self.faults.append(f"{look.__name__}: {type(error).__name__}: {error}")

    def _ask_status(self, client: Client) -> None:
        begun_s = time.monotonic()
        client.status()
        self.status_s.append(time.monotonic() - begun_s)

    def _be_polite(self, client: Client) -> None:
        begun_s = time.monotonic()
        try:
            client.infer(random_frames(model_inputs(client.metadata()["model"]), 1, seed=0)[0])
            self.polite_s.append(time.monotonic() - begun_s)
        except ShishaError as error:
            self.polite_codes[error.code] += 1

    def _sample(self, _: Client) -> None:
        for what, pid in self.processes().items():
            self.http_pids |= {pid} if what == HTTP_PROCESS else set()
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self.samples.append((time.time(), what, private_mib(pid)))

    def processes(self) -> dict[str, int]:
        """The daemon's processes, without one that is just being restarted."""
        http = self.daemon.running("shisha_rt.http.process")
        return {"daemon": self.daemon.pid, **({HTTP_PROCESS: http[0].pid} if http else {})}

    def connections(self) -> int:
        """Established connections to the public addresses."""
        ports = {urlsplit(self.daemon.endpoint).port, urlsplit(self.daemon.http[0]).port}
        return sum(
            connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port in ports
            for pid in self.processes().values()
            for connection in psutil.Process(pid).net_connections("tcp")
        )

    def descriptors(self) -> int:
        return sum(psutil.Process(pid).num_fds() for pid in self.processes().values())


def overload(
    model: Annotated[str, typer.Option(help="A network of the zoo; or identity, which computes next to nothing.")] = (
        "squeezenet"
    ),
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 10.0,
    connections: Annotated[int, typer.Option(min=20, help="In all, half of them over HTTP.")] = 1000,
    times: Annotated[float, typer.Option(min=0.1, help="The load, over capacity.")] = _TIMES,
) -> None:
    """More frames than can be answered, over many connections of which few behave; status 1 if a promise is broken."""
    report = Report("overload")
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        path = write_identity_model(folder) if model == NAME else f"zoo:{model}"
        options = ("--strategy", "guided", "--objective", "throughput", "--http", "127.0.0.1:0")
        with DaemonProcess(folder, path, *options, is_program=True) as daemon, Rig() as rig:
            daemon.wait_for_workers()
            settings = {ZEROMQ: None, HTTP: urlsplit(daemon.http[0]).port}
            crowds = {
                what: rig.child("many_process", endpoint=daemon.endpoint, port=port) for what, port in settings.items()
            }
            rows, broken = _measure(daemon, crowds, rig, 60 * minutes, connections, times, report)
    report.save(rows, "" if model != NAME else f"overload_{NAME}")
    report.show(f"Overload, {model}", rows)
    if broken:
        for fault in broken:
            print(f"overload: {fault}")
        raise typer.Exit(1)


def _measure(
    daemon: DaemonProcess,
    crowds: Mapping[str, ChildProcess],
    rig: Rig,
    seconds: float,
    connections: int,
    times: float,
    report: Report,
) -> tuple[list[Row], list[str]]:
    zeromq = crowds[ZEROMQ]
    report.glance("the daemon tunes itself")
    _tuned(daemon, zeromq)
    watched = _Watched(daemon)
    before = watched.connections(), watched.descriptors()
    report.glance("capacity")
    alone = _saturated(zeromq)
    report.glance("connections come")
    manners = _manners(connections // 2)
    for crowd in crowds.values():
        crowd.ask(open=manners)
    zeromq.ask(fill={"count": _FILL})
    _settled(daemon)
    rate = times * alone["fps"]
    report.glance(f"{rate:.0f} frames a second")
    loop_before, http_before = cpu_time(daemon.pid), _cpu_s(watched)
    own_s = time.process_time()
    with watched.watching():
        order = {"begin_s": time.monotonic() + _LEAD_S, "seconds": seconds, "rate": rate / len(crowds)}
        for crowd in crowds.values():
            crowd.tell(offer=order)
        time.sleep(_LEAD_S + seconds)
        loop = cpu_time(daemon.pid).since(loop_before)
        http_cpu_s = _cpu_s(watched) - http_before
        results = {what: crowd.hear() for what, crowd in crowds.items()}
    clients_cpu = sum(counts["cpu"] for counts in results.values()) + (time.process_time() - own_s) / (
        _LEAD_S + seconds
    )
    report.glance("capacity beside as much CPU of others")
    rig.close()  # the clients go, all at once
    left = _left(watched, before)
    with child_process("benchmarks.rigs.many_process", endpoint=daemon.endpoint, port=None) as again:
        beside = _beside(again, daemon, clients_cpu - alone["cpu"])
    findings = _Found(results, watched, seconds, alone["fps"])
    figures = {
        **findings.figures(connections, manners, rate),
        "loop's CPU, of a core": loop.main_s / seconds,
        "daemon's other threads' CPU, of a core": loop.rest_s / seconds,
        "HTTP process's CPU, of a core": http_cpu_s / seconds,
        "clients' CPU, cores": clients_cpu,
        "one client's CPU at capacity, cores": alone["cpu"],
        "capacity beside as much CPU, frames/s": beside["fps"],
        "goodput / capacity beside as much CPU": findings.goodput / beside["fps"],
        "connections left": left[0],
        "descriptors left": left[1],
    }
    return listed(figures, "figure"), findings.broken(left[0])


@dataclass(frozen=True, slots=True)
class _Found:
    """`results`: by protocol, see `many_process.Crowd.offer`."""

    results: Mapping[str, Mapping[str, Any]]
    watched: _Watched
    seconds: float
    capacity: float

    @property
    def goodput(self) -> float:
        return sum(sum(counts["per_second"]) for counts in self.results.values()) / self.seconds

    def total(self, what: str) -> int:
        return sum(counts[what] for counts in self.results.values())

    def latencies_ms(self, what: str) -> list[float]:
        return [ms for ms, count in self.results[what]["latency_ms"] for _ in range(count)]

    @property
    def growth(self) -> dict[str, tuple[float, float, float | None]]:
        """MiB of each process in the last fifth, growth since the first one, and MiB a minute, by least squares."""
        from_s = self.watched.samples[0][0] + min(60.0, self.seconds / 5)
        samples = [sample for sample in self.watched.samples if sample[0] >= from_s]
        grown = {}
        for what in dict.fromkeys(what for _, what, _ in samples):
            minutes, mib = zip(*((at_s / 60, mib) for at_s, whose, mib in samples if whose == what), strict=True)
            part, slopes = max(1, len(mib) // 5), len(set(minutes)) > 1
            first, last = statistics.median(mib[:part]), statistics.median(mib[-part:])
            grown[what] = last, last - first, statistics.linear_regression(minutes, mib).slope if slopes else None
        return grown

    def figures(self, connections: int, manners: Mapping[str, int], rate: float) -> dict[str, object]:
        server = self.watched.daemon.control.metadata()["server"]
        queue = 2 * server["max_in_flight"]
        by_second = np.sum([counts["per_second"] for counts in self.results.values()], axis=0)
        pieces = [float(piece.mean()) / self.capacity for piece in np.array_split(by_second, _PIECES) if len(piece)]
        figures: dict[str, object] = {
            "seconds": self.seconds,
            "connections": connections,
            **{f"connections, {manner}": 2 * count for manner, count in manners.items()},
            "capacity, frames/s": self.capacity,
            "offered, frames/s": rate,
            "sent, frames/s": self.total("sent") / self.seconds,
            "goodput, frames/s": self.goodput,
            "goodput / capacity": self.goodput / self.capacity,
            "goodput / capacity, by tenths of the time": Spread.of(pieces),
            "goodput / capacity, least tenth": min(pieces),
            "wait that the queue allows s": queue / self.goodput if self.goodput else None,
        }
        for what, counts in self.results.items():
            served_ms = self.latencies_ms(what)
            figures |= {
                f"{what}: served": counts["codes"].get("", 0),
                f"{what}: served, p50 s": percentile(served_ms, 50) / 1e3 if served_ms else None,
                f"{what}: served, p99 s": percentile(served_ms, 99) / 1e3 if served_ms else None,
                **{f"{what}: refused, {code}": count for code, count in sorted(counts["codes"].items()) if code},
                **{f"{what}: cut off, {manner}": count for manner, count in sorted(counts["cut_off"].items())},
            }
        polite_s, status_s = self.watched.polite_s, self.watched.status_s
        figures |= {
            "polite client: served": len(polite_s),
            **{f"polite client: {code}": count for code, count in sorted(self.watched.polite_codes.items())},
            "polite client: p50 s": percentile(polite_s, 50) if polite_s else None,
            "polite client: p99 s": percentile(polite_s, 99) if polite_s else None,
            "lost": self.total("lost"),
            "doubled or unasked": self.total("doubled"),
            "wrong": self.total("wrong"),
            "HTTP processes that ended": len(self.watched.http_pids) - 1,
            "status ms, median": 1e3 * percentile(status_s, 50),
            "status ms, 99th percentile": 1e3 * percentile(status_s, 99),
            "status ms, most": 1e3 * max(status_s),
        }
        for what, (last, grown, each_minute) in self.growth.items():
            figures |= {
                f"{what}: private MiB": last,
                f"{what}: growth MiB": grown,
                f"{what}: growth MiB a minute": each_minute,
            }
        return figures

    def broken(self, connections_left: int) -> list[str]:
        faults = [*self.watched.faults]
        for what in ("lost", "doubled", "wrong"):
            if count := self.total(what):
                faults.append(f"{count} {what}")
        if len(self.watched.http_pids) > 1:
            faults.append(f"{len(self.watched.http_pids) - 1} HTTP processes ended: {self.watched.daemon.stderr()}")
        if connections_left:
            faults.append(f"{connections_left} connections are left")
        grown = [what for what, (_, by_mib, _) in self.growth.items() if by_mib > _GROWTH_MIB]
        return [*faults, *(f"the memory of the {what} grows" for what in grown)]


def _cpu_s(watched: _Watched) -> float:
    """CPU time of the present HTTP process."""
    pid = watched.processes().get(HTTP_PROCESS)
    return 0.0 if pid is None else whole_cpu_s(pid)


def _manners(count: int) -> dict[str, int]:
    tenth = count // 10
    return {HONEST: count - 4 * tenth, DEAF: tenth, TRICKLING: tenth, HALF: 2 * tenth}


def _saturated(crowd: ChildProcess) -> Mapping[str, Any]:
    return crowd.ask(saturate={"seconds": _CAPACITY_S, "in_flight": _IN_FLIGHT})


def _tuned(daemon: DaemonProcess, crowd: ChildProcess) -> None:
    """Tune the daemon for a while; the plan that it has found by then serves."""
    until_s, calm = time.monotonic() + _TUNING_S, 0
    while calm < 2 and time.monotonic() < until_s:
        crowd.ask(saturate={"seconds": 2.0, "in_flight": _IN_FLIGHT})
        calm = calm + 1 if is_watching(daemon.control) else 0
    daemon.control.call("tuner_set", pause=True)


def _settled(daemon: DaemonProcess) -> None:
    """Wait until all earlier requests are answered."""
    until_s, calm = time.monotonic() + _TUNING_S, 0
    while calm < 5 and time.monotonic() < until_s:
        begun_s = time.monotonic()
        daemon.control.status()
        calm = calm + 1 if time.monotonic() - begun_s < _CALM_S else 0


def _beside(crowd: ChildProcess, daemon: DaemonProcess, cores: float) -> Mapping[str, Any]:
    """Capacity while as many processes as those of clients use `cores` of the cores."""
    with Rig() as rig:
        others = [rig.child("many_process", endpoint=daemon.endpoint, port=None) for _ in (ZEROMQ, HTTP)]
        for other in others:
            other.tell(burn={"seconds": _CAPACITY_S + 2, "cores": max(0.0, cores) / len(others)})
        results = _saturated(crowd)
        for other in others:
            other.hear()
    return results


def _left(watched: _Watched, before: tuple[int, int]) -> tuple[int, int]:
    """How many more connections and descriptors there are than before, once their numbers no longer fall."""
    until_s = time.monotonic() + _LEFT_S
    while (left := (watched.connections() - before[0], watched.descriptors() - before[1])) and max(left) > 0:
        if time.monotonic() > until_s:
            break
        time.sleep(0.5)
    return max(0, left[0]), left[1]
