"""Random actions on several models at one address: `python -m benchmarks campaign_models`.

A real host process with three models, each the identity network times its version, so that an answer identifies its
frame and the version that computed it. Each model has a client, connected to the model's daemon, which sends an ordered
stream; rates change at random, so that places move between the models. Meanwhile, by one seed and one after the other:
a version takes over from another, or is undone; a model is unloaded and loaded again; unless `--calm`, workers, daemons
and the host process are killed, at random and while a version is loaded. `--restless`: loads change most of the time,
there are twice as many places, none shared and each emulated as a tenth of a core, and a place may be dealt again at
once, so that there are many moves.

Reported are the following; the exit status is 1 if any of the first four is not 0:

- `lost`: frames without an answer; `wrong`: answers of no version;
- `of another version`: answers of a version that should not serve then: of the old one, to a frame sent half a second
  after the new one was reported to serve, or after an answer of the new one; of a version that was not requested;
- `refused`: errors, except for a model that was unloaded, or whose daemon was killed, at that time;
- `moves`: places that were dealt to another model, or taken back;
- `replaced ms`, `else ms`: latency of frames in flight while a version was loaded, and of all others: median and 99th
  percentile;
- `left`: processes and files after the end.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import onnx
import psutil
import typer
import zmq
from onnx import numpy_helper

from benchmarks.report.report import Report
from benchmarks.report.results import Row, listed, percentile
from benchmarks.rigs.http_asking import Answer, version_of
from shisha_rt.client import Client, ShishaError
from tests.serving.daemon_process import leftovers, machine_file
from tests.serving.host_process import HostProcess
from tests.serving.identity_model import frame_of, write_identity_model
from tests.waiting import until

MODELS: Final = ("a", "b", "c")
PLACES: Final = ("p", "q", "r", "s")
_CHANNELS, _SIZE = 32, 24
SHAPE: Final = (1, _CHANNELS, _SIZE, _SIZE)
_IN_FLIGHT: Final = 12
_IDLE_S: Final = 2.0
"""Pause before each frame of a model that leaves its places to others; other models fill their places."""
_DEATHS_APART_S: Final = 11.0
"""Time between deaths: a daemon that dies five times without having served for ten seconds is given up."""
_HEARD_WITHIN_S: Final = 0.5
"""Time for a client to hear from its daemon that another one serves, and to connect there: some milliseconds."""
_WITHIN_S: Final = 100.0
_RESTLESS: Final = (sys.executable, "-m", "benchmarks.rigs.restless_host")


@dataclass
class Change:
    """From `begun_s` on a model's answers may be of `version`; frames sent after `done_s` must be."""

    begun_s: float
    done_s: float
    version: int


@dataclass
class _Model:
    """`outages`: periods in which the model's daemon may have been killed or unloaded."""

    name: str
    changes: list[Change] = field(default_factory=lambda: [Change(0.0, -np.inf, 1)])
    outages: list[tuple[float, float]] = field(default_factory=list)
    previous: int | None = None
    died_s: float = 0.0

    @property
    def version(self) -> int:
        return self.changes[-1].version


def write_version(folder: Path, version: int) -> Path:
    """Write a network whose output is `version` times its input."""
    path = folder / f"v{version}.onnx"
    if not path.exists():
        with tempfile.TemporaryDirectory() as name:
            model = onnx.load(write_identity_model(Path(name), channels=_CHANNELS, size=_SIZE))
        for weights in model.graph.initializer:
            if weights.name == "y_w":
                values = numpy_helper.to_array(weights) * np.float32(version)
                weights.CopyFrom(numpy_helper.from_array(values, "y_w"))
        onnx.save(model, path)
    return path


class _Asking(threading.Thread):
    def __init__(self, endpoint: str, model: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.pause_s = 0.0
        self.answers: list[Answer] = []
        self.sent = self.wrong = 0
        self._endpoint, self._model, self._rng = endpoint, model, rng
        self._under_way: deque[tuple[float, Any]] = deque()
        self._ending = threading.Event()

    def run(self) -> None:
        with (
            Client(self._endpoint, model=self._model, timeout_s=_WITHIN_S) as client,
            client.stream(in_flight=_IN_FLIGHT) as stream,
        ):
            for outcome in stream.run(self._frames(), errors="return"):
                self._take(outcome)

    def _frames(self) -> Iterator[Any]:
        while not self._ending.wait(self.pause_s):
            frame = frame_of(self._rng.randrange(1, 2**16), SHAPE)
            self._under_way.append((time.monotonic(), frame))
            self.sent += 1
            yield frame

    def _take(self, outcome: Any) -> None:
        sent_s, frame = self._under_way.popleft()
        answered_s = time.monotonic()
        if isinstance(outcome, ShishaError):
            self.answers.append(Answer(sent_s, answered_s, None, outcome.code.value, str(outcome)))
            time.sleep(0.02)
            return
        version = version_of(outcome.output.tobytes(), frame)
        if version is None:
            self.wrong += 1
        else:
            self.answers.append(Answer(sent_s, answered_s, version))

    def finish(self) -> None:
        self._ending.set()
        self.join(_WITHIN_S)


class _Campaign:
    def __init__(self, folder: Path, rng: random.Random, *, calm: bool, restless: bool) -> None:
        self.done: Counter[str] = Counter()
        self.refused: list[str] = []
        self.models = {name: _Model(name) for name in MODELS}
        self.private_bytes: list[int] = []
        self._folder, self._rng = folder, rng
        self._served = folder / "models"
        self._served.mkdir()
        paths = {name: self._served / f"{name}.onnx" for name in MODELS}
        for path in paths.values():
            shutil.copy(write_version(self._served, 1), path)
        self._arguments: list[Path | str]
        if restless:
            self._arguments = _restless_arguments(folder, paths)
        else:
            self._arguments = [*paths.values(), "--machine", machine_file(folder, PLACES)]
        self._within = _RESTLESS if restless else ()
        self.host = HostProcess(folder, *self._arguments, within=self._within, is_program=True)
        self.moves = 0
        self._next_event = 0
        self.asking = {name: _Asking(self.host.endpoint, name, random.Random(f"{rng.random()}")) for name in MODELS}
        paces = 60 if restless else 5
        acts: dict[Callable[[], None], int] = {self.pace: paces, self.replace: 8, self.undo: 2, self.reload: 1}
        if not calm:
            acts |= {self.kill_worker: 6, self.kill_daemon: 2, self.kill_amid_load: 4, self.kill_host: 1}
        self._acts, self._weights = [*acts], [*acts.values()]

    def step(self) -> None:
        (act,) = self._rng.choices(self._acts, self._weights)
        act()
        self._count_moves()
        processes = self.host.processes()
        with contextlib.suppress(psutil.Error):
            self.private_bytes.append(sum(process.memory_full_info().pss for process in processes))
        time.sleep(self._rng.uniform(0, 1.0))

    def _count_moves(self) -> None:
        log = self.host.control.events(self._next_event, 10_000)
        self._next_event = log["next"]
        self.moves += sum(event["kind"] in ("place_dealt", "place_taken_back") for event in log["events"])

    def _one(self) -> _Model:
        return self._rng.choice([*self.models.values()])

    def pace(self) -> None:
        busy = self._rng.sample(MODELS, self._rng.randint(1, len(MODELS)))
        for name, asking in self.asking.items():
            asking.pause_s = 0.0 if name in busy else _IDLE_S
        self.done["loads changed"] += 1

    def replace(self) -> None:
        model = self._one()
        self._change(model, model.version + self._rng.randint(1, 3))

    def undo(self) -> None:
        model = self._one()
        if model.previous is not None:
            self._change(model, model.previous, undo=True)

    def _change(self, model: _Model, version: int, *, undo: bool = False) -> None:
        change = Change(time.monotonic(), np.inf, version)
        model.changes.append(change)
        wanted: dict[str, Any] = (
            {} if undo else {"model": str(write_version(self._served, version)), "version": str(version)}
        )
        try:
            self._ask("model_undo" if undo else "model_load", model, **wanted)
        except ShishaError as error:
            model.changes.remove(change)
            self.done[f"versions refused, {error.code.value}"] += 1
            self.refused.append(f"{model.name} {version}: {error}")
            # It may have taken over all the same, if it was the answer that was lost.
            now = int(self._told(model)["version"])
            if now != model.version:
                model.changes.append(Change(change.begun_s, time.monotonic(), now))
            return
        change.done_s = time.monotonic()
        model.previous = None if undo else model.changes[-2].version
        self.done["versions undone" if undo else "versions that took over"] += 1

    def reload(self) -> None:
        """Unload a model for a moment, and load it again with the same version."""
        model, begun_s = self._one(), time.monotonic()
        self._ask("model_unload", model)
        time.sleep(self._rng.uniform(0, 0.5))
        self._ask("model_load", model)
        model.outages.append((begun_s, time.monotonic()))
        self.done["models unloaded and loaded"] += 1

    def kill_worker(self) -> None:
        name = self._one().name
        with Client(self.host.endpoint, model=name, timeout_s=_WITHIN_S) as client, contextlib.suppress(ShishaError):
            pids = [place["pid"] for place in client.status()["places"] if place["pid"]]
            if pids:
                self._kill(self._rng.choice(pids), "workers killed")

    def kill_daemon(self) -> None:
        model = self._one()
        if time.monotonic() - model.died_s > _DEATHS_APART_S:
            begun_s = model.died_s = time.monotonic()
            pid = self._told(model)["pid"]
            self._kill(pid, "daemons killed")
            self._wait_until_served(model, other_than=pid)
            model.outages.append((begun_s, time.monotonic()))

    def kill_amid_load(self) -> None:
        """Kill a process of the present daemon or of the new one, at random."""
        model = self._one()
        if time.monotonic() - model.died_s > _DEATHS_APART_S:
            begun_s = model.died_s = time.monotonic()
            with ThreadPoolExecutor(1) as pool:
                loading = pool.submit(self._change, model, model.version + 1)
                time.sleep(self._rng.uniform(0, 1.5))
                others = {self._told(other)["pid"] for other in self.models.values() if other is not model}
                daemons = {process.pid for process in self.host.running("shisha_rt.repository.hosted")}
                pid = self._rng.choice(sorted(daemons - others))
                self._kill(pid, "daemons killed amid a load")
                loading.result()
            self._wait_until_served(model, other_than=pid)
            model.outages.append((begun_s, time.monotonic()))

    def kill_host(self) -> None:
        """Kill the host process. Daemons and clients go on; a new one takes over, with the versions to serve."""
        begun_s = time.monotonic()
        self._count_moves()
        with ThreadPoolExecutor(1) as pool:
            model = self._one() if self._rng.random() < 0.5 else None
            if model:  # amid a load, whose answer goes down with it
                version = model.version + 1
                wanted: dict[str, Any] = {"model": str(write_version(self._served, version)), "version": str(version)}
                with contextlib.suppress(ShishaError):
                    pool.submit(self._ask, "model_load", model, timeout_s=1.0, **wanted)
                    time.sleep(self._rng.uniform(0, 1.0))
            self.host.popen.kill()
            self.host.popen.wait()
        before = self.host
        before.control.close()
        assert before.popen.stdout is not None
        before.popen.stdout.close()
        self.host = HostProcess(
            self._folder, *self._arguments, endpoint=before.endpoint, within=self._within, is_program=True
        )
        self._next_event = 0
        for each in self.models.values():
            self._wait_until_served(each)
            each.outages.append((begun_s, time.monotonic()))
            each.previous = None
            if each.version != 1 or each is model:
                last = each.version + (each is model)
                each.changes.append(Change(begun_s, np.inf, last))
                each.changes.append(Change(begun_s, time.monotonic(), 1))
        self.done["host processes killed"] += 1

    def _kill(self, pid: int, what: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.done[what] += 1

    def _ask(self, op: str, served: _Model, /, *, timeout_s: float = _WITHIN_S, **wanted: Any) -> None:
        with Client(self.host.endpoint, timeout_s=timeout_s) as client:
            client.call(op, model_name=served.name, **wanted)

    def _told(self, model: _Model) -> dict[str, Any]:
        return self.host.entry(model.name)

    def _wait_until_served(self, model: _Model, other_than: int | None = None) -> None:
        def serves() -> bool:
            status = self._told(model)
            return status["state"] == "READY" and status["pid"] not in (None, other_than)

        until(serves, f"{model.name} again", every_s=0.05)


def _restless_arguments(folder: Path, paths: Mapping[str, Path]) -> list[Path | str]:
    """Arguments with four places on each of two cores; each model has one place of its own."""
    tables = [f'[[model]]\nmodel = "{path}"\nname = "{name}"\nleast = 1\n' for name, path in paths.items()]
    (folder / "restless.toml").write_text("".join(tables))
    cores = sorted(os.sched_getaffinity(0))
    places = [
        f'[[place]]\nname = "{place}{core}"\ncores = [{core}]\nspeed = 0.1\n' for core in cores[:2] for place in PLACES
    ]
    (folder / "tenths.toml").write_text("".join(places))
    return [folder / "restless.toml", "--machine", str(folder / "tenths.toml")]


def broken_versions(answers: list[Answer], changes: list[Change]) -> int:
    """Answers of a version that should not serve then: see the module. `changes`: in order, from the start on."""
    broken, newest = 0, 0
    for answer in answers:
        if answer.version is None:
            continue
        settled = max(index for index, change in enumerate(changes) if change.done_s + _HEARD_WITHIN_S <= answer.sent_s)
        able = [
            index
            for index in range(max(settled, newest), len(changes))
            if changes[index].begun_s <= answer.answered_s and changes[index].version == answer.version
        ]
        if able:
            newest = able[0]
        else:
            broken += 1
    return broken


def campaign_models(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of the random generator.")] = 0,
    calm: Annotated[bool, typer.Option("--calm", help="Nothing is killed.")] = False,
    restless: Annotated[bool, typer.Option("--restless", help="Places move as often as they can.")] = False,
) -> None:
    """Versions, loads and kills at random among several models; status 1 if a promise is broken."""
    rng, report = random.Random(seed), Report("campaign_models")
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-models-") as name:
        going = _Campaign(Path(name), rng, calm=calm, restless=restless)
        try:
            for asking in going.asking.values():
                asking.start()
            while time.monotonic() < begun_s + 60 * minutes:
                going.step()
                answered = sum(len(asking.answers) for asking in going.asking.values())
                report.glance(f"{answered} frames, {going.done.total()} changes and faults, {going.moves} moves")
            for asking in going.asking.values():
                asking.finish()
        finally:
            going.host.__exit__(None, None, None)
        left = len(leftovers(going.host.runtime)) + len(going.host.processes())
    zmq.Context.instance().term()
    rows = _rows(going, left, time.monotonic() - begun_s)
    report.save(rows, f"campaign_models{'_calm' * calm}{'_restless' * restless}")
    report.show("Campaign of several models", rows, going.refused[:20])
    if any(row["count"] for row in rows if row["what"] in ("lost", "wrong", "of another version", "refused", "left")):
        raise typer.Exit(1)


def _rows(going: _Campaign, left: int, seconds: float) -> list[Row]:
    everything = [(going.models[name], asking) for name, asking in going.asking.items()]
    refused, away = 0, Counter[str]()
    replaced_s, else_s = list[float](), list[float]()
    for model, asking in everything:
        for answer in asking.answers:
            during = answer.sent_s, answer.answered_s
            if answer.version is None:
                if overlaps(during, model.outages):
                    away[answer.code] += 1
                else:
                    refused += 1
                    going.refused.append(f"{model.name}: {answer.message}")
            elif overlaps(during, loads(model.changes)):
                replaced_s.append(answer.answered_s - answer.sent_s)
            elif not overlaps(during, model.outages):
                else_s.append(answer.answered_s - answer.sent_s)
    part = max(1, len(going.private_bytes) // 10)
    figures: dict[str, object] = {
        "seconds": seconds,
        "frames": sum(asking.sent for _, asking in everything),
        "lost": sum(asking.sent - len(asking.answers) - asking.wrong for _, asking in everything),
        "wrong": sum(asking.wrong for _, asking in everything),
        "of another version": sum(broken_versions(asking.answers, model.changes) for model, asking in everything),
        "refused": refused,
        **{f"errors while away, {code}": count for code, count in sorted(away.items())},
        "moves": going.moves,
        **dict(sorted(going.done.items())),
        "frames under way while a version was loaded": len(replaced_s),
        **_times("replaced", replaced_s),
        **_times("else", else_s),
        "all processes MiB, first tenth": np.median(going.private_bytes[:part]) / 2**20,
        "all processes MiB, last tenth": np.median(going.private_bytes[-part:]) / 2**20,
        "left": left,
    }
    return listed(figures, "count")


def loads(changes: list[Change]) -> list[tuple[float, float]]:
    return [(change.begun_s, change.done_s) for change in changes[1:] if change.done_s < np.inf]


def _times(what: str, seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {
        f"{what} ms, median": 1e3 * percentile(seconds, 50),
        f"{what} ms, 99th percentile": 1e3 * percentile(seconds, 99),
        f"{what} ms, most": 1e3 * max(seconds),
    }


def overlaps(during: tuple[float, float], spans: list[tuple[float, float]]) -> bool:
    return any(begun_s <= during[1] and during[0] <= ended_s for begun_s, ended_s in spans)
