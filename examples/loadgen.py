"""MLPerf's load generator against a daemon: `python examples/loadgen.py MODEL` (docs/examples.md).

LoadGen (the extra `loadgen`) decides when frames come and judges what it saw; this file is the system under test that
it asks, one of two:

- `daemon`: a daemon that runs already (`--endpoint`), asked by `AsyncClient`;
- `onnxruntime`: sessions of ONNX Runtime in this process, `--copies` of them with `--threads` each, to hold it
  against.

`Offline` gives all frames at once and asks for the rate; `Server` gives them one by one at random times (Poisson), so
many a second, and asks that 99 of 100 are answered within a time; `SingleStream` gives the next frame when the last one
is answered, `MultiStream` the next eight, and both ask for the latency. Frames are seeded noise, and runs are shorter
than MLPerf's rules want, unless they have `--seconds 600`: VALID says that LoadGen's own checks held for this run, not
that it is a submission.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shisha_rt.client import AsyncClient, Client
from shisha_rt.tensors import NUMPY_OF

Frame = dict[str, npt.NDArray[Any]]
Answered = Callable[[Sequence[int]], None]
"""Called with the ids of queries whose answers are there."""

LIBRARY = 64
"""Frames to choose from; LoadGen draws them at random."""

SCENARIOS = ("Offline", "Server", "SingleStream", "MultiStream")

FRAMES_AT_ONCE = 8
"""Of a query of `MultiStream`, as MLPerf has it."""


class UnderTest(Protocol):
    def issue(self, queries: Sequence[tuple[int, int]]) -> None:
        """(id, number of its frame) each. Returns at once; LoadGen's own thread calls it."""

    def close(self) -> None: ...


class DaemonUnderTest:
    """An event loop in a thread of its own, with at most `in_flight` frames with the daemon at once."""

    def __init__(self, endpoint: str, frames: Sequence[Frame], in_flight: int, answered: Answered) -> None:
        self._frames = frames
        self._answered = answered
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._room = asyncio.Semaphore(in_flight)
        self._client = AsyncClient(endpoint, timeout_s=600)
        self._tasks: set[asyncio.Task[None]] = set()

    def issue(self, queries: Sequence[tuple[int, int]]) -> None:
        self._loop.call_soon_threadsafe(self._begin, queries)

    def _begin(self, queries: Sequence[tuple[int, int]]) -> None:
        for query in queries:
            task = self._loop.create_task(self._run(*query))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, query: int, number: int) -> None:
        async with self._room:
            await self._client.infer(self._frames[number])
        self._answered([query])

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class OnnxRuntimeUnderTest:
    """Copies of the model, each with so many threads, that take from one queue."""

    def __init__(self, path: Path, frames: Sequence[Frame], copies: int, threads: int, answered: Answered) -> None:
        import onnxruntime

        self._frames = frames
        self._answered = answered
        self._queries: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        sessions = [onnxruntime.InferenceSession(path, options) for _ in range(copies)]
        self._threads = [threading.Thread(target=self._run, args=(session,)) for session in sessions]
        for thread in self._threads:
            thread.start()

    def issue(self, queries: Sequence[tuple[int, int]]) -> None:
        for query in queries:
            self._queries.put(query)

    def _run(self, session: Any) -> None:
        while (query := self._queries.get()) is not None:
            session.run(None, self._frames[query[1]])
            self._answered([query[0]])

    def close(self) -> None:
        for _ in self._threads:
            self._queries.put(None)
        for thread in self._threads:
            thread.join()


def library(inputs: Sequence[dict[str, Any]]) -> list[Frame]:
    """`inputs` as `model_metadata` has them."""
    generator = np.random.default_rng(0)
    return [
        {
            tensor["name"]: generator.standard_normal(tensor["shape"]).astype(NUMPY_OF[tensor["datatype"]])
            for tensor in inputs
        }
        for _ in range(LIBRARY)
    ]


def run(settings: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """What LoadGen says of one run: its verdict, and the figures of its scenario."""
    try:
        import mlperf_loadgen as loadgen
    except ImportError:
        sys.exit("loadgen.py: LoadGen is not installed; expected: pip install 'shisha-rt[loadgen]'")

    def answered(queries: Sequence[int]) -> None:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(query, 0, 0) for query in queries])

    with Client(settings.endpoint) as client:
        inputs = client.metadata()["model"]["inputs"]
    frames = library(inputs)
    under_test: UnderTest
    if settings.system == "daemon":
        under_test = DaemonUnderTest(settings.endpoint, frames, settings.in_flight, answered)
    else:
        under_test = OnnxRuntimeUnderTest(settings.model, frames, settings.copies, settings.threads, answered)

    def issue(samples: Sequence[Any]) -> None:
        under_test.issue([(sample.id, sample.index) for sample in samples])

    test = loadgen.TestSettings()
    test.mode = loadgen.TestMode.PerformanceOnly
    test.scenario = getattr(loadgen.TestScenario, settings.scenario)
    test.min_duration_ms = round(1e3 * settings.seconds)
    test.min_query_count = 1
    if settings.scenario == "Server":
        test.server_target_qps = settings.rate
        test.server_target_latency_ns = round(1e6 * settings.latency_ms)
        test.server_target_latency_percentile = 0.99
        test.min_query_count = round(settings.rate * settings.seconds)
    elif settings.scenario == "Offline":
        test.offline_expected_qps = settings.rate
    elif settings.scenario == "MultiStream":
        test.multi_stream_samples_per_query = FRAMES_AT_ONCE
        test.multi_stream_expected_latency_ns = round(1e9 * FRAMES_AT_ONCE / settings.rate)
    else:
        test.single_stream_expected_latency_ns = round(1e9 / settings.rate)
    log = loadgen.LogSettings()
    log.log_output.outdir = str(folder)
    log.log_output.copy_summary_to_stdout = False
    log.enable_trace = False
    sut = loadgen.ConstructSUT(issue, lambda: None)
    qsl = loadgen.ConstructQSL(LIBRARY, LIBRARY, lambda _: None, lambda _: None)
    try:
        loadgen.StartTestWithLogSettings(sut, qsl, test, log)
    finally:
        loadgen.DestroyQSL(qsl)
        loadgen.DestroySUT(sut)
        under_test.close()
    return summary((folder / "mlperf_log_summary.txt").read_text(), settings)


def summary(text: str, settings: argparse.Namespace) -> dict[str, Any]:
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    result: dict[str, Any] = {"system": settings.system, "scenario": settings.scenario, "result": fields["Result is"]}
    if settings.scenario == "Offline":
        result["frames_per_s"] = float(fields["Samples per second"])
    elif settings.scenario == "Server":
        result["frames_per_s"] = float(fields["Completed samples per second"])
        result["asked_per_s"], result["within_ms"] = settings.rate, settings.latency_ms
    for percent in (50, 90, 99):
        result[f"p{percent}_ms"] = float(fields[f"{percent}.00 percentile latency (ns)"]) / 1e6
    if result["result"] != "VALID":
        result["why"] = [line.strip(" *") for line in text.splitlines() if line.startswith(" * ")]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="MLPerf LoadGen against a daemon, or plain ONNX Runtime.")
    parser.add_argument("model", type=Path, help="the ONNX file that the daemon serves")
    parser.add_argument("--endpoint", default="tcp://127.0.0.1:5555", help="of the daemon, which runs already")
    parser.add_argument("--system", choices=["daemon", "onnxruntime"], default="daemon")
    parser.add_argument("--scenario", choices=SCENARIOS, default="Offline")
    parser.add_argument("--seconds", type=float, default=60, help="at least")
    parser.add_argument("--rate", type=float, default=100, help="frames a second: asked by Server, expected by others")
    parser.add_argument("--latency-ms", type=float, default=100, help="Server: 99 of 100 within this")
    parser.add_argument("--in-flight", type=int, default=16, help="with the daemon at once")
    parser.add_argument("--copies", type=int, default=2, help="of ONNX Runtime")
    parser.add_argument("--threads", type=int, default=1, help="of each of these")
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(settings, Path(folder))))


if __name__ == "__main__":
    main()
