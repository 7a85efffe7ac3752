"""A plain engine with a whole network, in a separate process: the reference for the daemon.

Frames are in memory: nothing is sent or received, and answers are not checked. `stages/engines/plain.py` has the
engines. Orders: `seconds`; with `pause_s`, too, frames run one by one, see `one_by_one`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.rigs.asking import one_by_one, random_inputs
from benchmarks.rigs.child_process import Child, Fields, obey
from stages.engines.openvino.session import compile_network
from stages.engines.openvino.whole import network_of_frames
from stages.engines.plain import PLAIN_ENGINES, RunningEngine, copies_on

_WARM_UP_S: Final = 0.3

_TOGETHER: Final = 4
_BATCHES: Final = "openvino_batches"
"""As `openvino_copies`, with batches of four frames."""
_USUAL: Final = ("ort_copies", "ort_threads", "openvino_copies", _BATCHES, "openvino_latency", "openvino_throughput")
HUGE: Final = {f"{name}_huge": name for name in ("ort_copies", "openvino_copies", _BATCHES)}
"""Engines given huge pages, as a daemon gives them to its workers: by the variable `HUGE_PAGES`."""
HUGE_PAGES: Final = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
PLAIN: Final = (*_USUAL, *HUGE)
"""All engines of the race."""
ALONE: Final = ("ort_threads", "openvino_latency")
"""Engines that run one frame at a time, for the least latency."""


def child(rival: str, path: str, inputs: Sequence[Mapping[str, Any]], cores: Sequence[int], cleaned: str = "") -> Child:
    os.sched_setaffinity(0, cores)
    if rival == _BATCHES:
        engine = _in_batches(Path(cleaned), cores)
    else:
        engine = PLAIN_ENGINES[rival](Path(path), random_inputs(inputs), cores)
    engine.run(_WARM_UP_S)
    return obey(partial(_run, engine))


def _run(engine: RunningEngine, seconds: float, pause_s: float | None = None) -> Fields:
    if pause_s is not None:
        return one_by_one(engine.run_frame, seconds, pause_s)
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    frames = engine.run(seconds)
    return {
        "frame_s": (time.monotonic() - started_s) / frames,
        "cpu_s": (time.process_time() - started_cpu_s) / frames,
        "total_frames": frames,
    }


def _in_batches(cleaned: Path, cores: Sequence[int]) -> RunningEngine:
    """Clean a file that was exported for one frame, and change its shapes for batches, as the daemon does."""
    runs = []
    for _ in cores:
        request = compile_network(network_of_frames(cleaned, _TOGETHER, _TOGETHER), "fp32", 1).create_infer_request()
        ports = enumerate(request.model_inputs)
        inputs = [{"name": at, "shape": port.shape, "dtype": port.element_type.to_dtype()} for at, port in ports]
        runs.append(partial(request.infer, random_inputs(inputs)))
    copies = copies_on(cores, runs)
    return RunningEngine(lambda seconds: _TOGETHER * copies.run(seconds), copies.run_frame)
