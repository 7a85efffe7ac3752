"""An engine by itself on a whole network, in a process of its own: what the daemon is measured against.

Frames lie in memory: nothing is sent or received, and answers are not looked at. Engines are left as they come, but
for threads and precision:

- `openvino_throughput`: OpenVINO in f32, told that throughput is wanted; it chooses streams and requests itself.
- `openvino_latency`: OpenVINO in f32, told that latency is wanted, one frame after the other on all cores.
- `ort_threads`: ONNX Runtime, one session on a thread for each core.
- `ort_parallel`: ONNX Runtime, one session that runs branches side by side, each operator on one thread.
- `ort_copies`: ONNX Runtime, for each core a session on one thread, pinned to it.
- `openvino_copies`: OpenVINO in f32, likewise.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from benchmarks.rigs.child_process import say
from shisha_rt.tensors import NUMPY_OF

_WARM_UP_S: Final = 0.3

Frame = dict[str, np.ndarray[Any, Any]]
Run = Callable[[float], int]
"""Keeps the engine busy for so many seconds; returns how many frames it has run."""


def openvino_throughput(path: Path, frame: Frame, cores: Sequence[int]) -> Run:
    import openvino

    config = {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": str(len(cores)),
    }
    queue = openvino.AsyncInferQueue(openvino.Core().compile_model(str(path), "CPU", config))

    def run(seconds: float) -> int:
        frames, ends_s = 0, time.monotonic() + seconds
        while time.monotonic() < ends_s:
            queue.start_async(frame)  # waits while all requests are busy
            frames += 1
        queue.wait_all()
        return frames

    return run


def openvino_latency(path: Path, frame: Frame, cores: Sequence[int]) -> Run:
    import openvino

    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": str(len(cores)),
    }
    request = openvino.Core().compile_model(str(path), "CPU", config).create_infer_request()

    def run(seconds: float) -> int:
        return _run_for(seconds, lambda: request.infer(frame))

    return run


def ort_threads(path: Path, frame: Frame, cores: Sequence[int]) -> Run:
    session = ort_session(path, len(cores))

    def run(seconds: float) -> int:
        return _run_for(seconds, lambda: session.run(None, frame))

    return run


def ort_parallel(path: Path, frame: Frame, cores: Sequence[int]) -> Run:
    session = ort_session(path, 1, side_by_side=len(cores))

    def run(seconds: float) -> int:
        return _run_for(seconds, lambda: session.run(None, frame))

    return run


def ort_copies(path: Path, frame: Frame, cores: Sequence[int]) -> Run:
    sessions = [ort_session(path, 1) for _ in cores]
    return _side_by_side(cores, [functools.partial(session.run, None, frame) for session in sessions])


def openvino_copies(path: Path, frame: Frame, cores: Sequence[int]) -> Run:
    import openvino

    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": "1",
        "NUM_STREAMS": "1",
        "ENABLE_CPU_PINNING": "NO",  # each would pin itself to the same core
    }
    copies = [openvino.Core().compile_model(str(path), "CPU", config) for _ in cores]
    return _side_by_side(cores, [functools.partial(copy.create_infer_request().infer, frame) for copy in copies])


def _side_by_side(cores: Sequence[int], copies: Sequence[Callable[[], object]]) -> Run:
    """Each copy from a thread of its own, pinned to a core."""

    def run(seconds: float) -> int:
        frames = [0] * len(cores)

        def run_one(which: int) -> None:
            os.sched_setaffinity(threading.get_native_id(), {cores[which]})
            frames[which] = _run_for(seconds, copies[which])

        threads = [threading.Thread(target=run_one, args=(which,)) for which in range(len(cores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(frames)

    return run


def ort_session(path: Path, threads: int, side_by_side: int = 1) -> Any:
    """`threads` of an operator, of which `side_by_side` may run at once."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if side_by_side > 1:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = side_by_side
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run_for(seconds: float, run: Callable[[], object]) -> int:
    frames, ends_s = 0, time.monotonic() + seconds
    while time.monotonic() < ends_s:
        run()
        frames += 1
    return frames


RIVALS: Final[Mapping[str, Callable[[Path, Frame, Sequence[int]], Run]]] = MappingProxyType(
    {rival.__name__: rival for rival in (openvino_throughput, ort_threads, ort_copies)}
)
PLAIN: Final[Mapping[str, Callable[[Path, Frame, Sequence[int]], Run]]] = MappingProxyType(
    {
        rival.__name__: rival
        for rival in (ort_copies, ort_threads, openvino_copies, openvino_latency, openvino_throughput)
    }
)
"""All that are in the race."""
ALONE: Final[Mapping[str, Callable[[Path, Frame, Sequence[int]], Run]]] = MappingProxyType(
    {rival.__name__: rival for rival in (ort_threads, openvino_latency)}
)
"""Those that run one frame after the other, as fast as each can be."""
SIDE_BY_SIDE: Final = "ort_parallel"
"""As those of `ALONE`, but no match for them on networks without branches."""


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    os.sched_setaffinity(0, settings["cores"])
    generator = np.random.default_rng(0)
    frame: Frame = {
        tensor["name"]: generator.standard_normal(tensor["shape"]).astype(NUMPY_OF[tensor["datatype"]])
        for tensor in settings["inputs"]
    }
    run = {**PLAIN, **ALONE, SIDE_BY_SIDE: ort_parallel}[settings["rival"]](
        Path(settings["path"]), frame, settings["cores"]
    )
    run(_WARM_UP_S)
    say(ready=True)
    for line in sys.stdin:
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        frames = run(json.loads(line)["seconds"])
        say(
            frame_s=(time.monotonic() - started_s) / frames,
            cpu_s=(time.process_time() - started_cpu_s) / frames,
            total_frames=frames,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
