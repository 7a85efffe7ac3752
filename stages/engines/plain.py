"""Engines by themselves on a whole network, for comparisons with a daemon.

Nothing is sent or received: frames lie in memory, and answers are ignored. Engines keep their defaults, except for
threads, precision and performance hints. They read the model's file themselves. OpenVINO computes in f32 unless its
engine's name ends in `_bf16`; by itself it takes bfloat16 on processors that have it.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from stages.engines.session import Array

Frame: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """`run` computes frames for so many seconds and returns their number; `run_frame` computes a single frame."""

    run: Callable[[float], int]
    run_frame: Callable[[], object]


def openvino_throughput(path: Path, frame: Frame, cores: Sequence[int], precision: str = "f32") -> RunningEngine:
    """OpenVINO with its throughput hint; it chooses streams and requests itself."""
    import openvino

    how = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": str(len(cores))}
    compiled = _compiled(path, frame, precision, how)
    queue = openvino.AsyncInferQueue(compiled)

    def run(seconds: float) -> int:
        frames, ends_s = 0, time.monotonic() + seconds
        while time.monotonic() < ends_s:
            queue.start_async(frame)  # waits while all requests are busy
            frames += 1
        queue.wait_all()
        return frames

    return RunningEngine(run, functools.partial(compiled.create_infer_request().infer, frame))


def openvino_latency(path: Path, frame: Frame, cores: Sequence[int], precision: str = "f32") -> RunningEngine:
    """OpenVINO with its latency hint, one frame after the other on all cores."""
    how = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": str(len(cores))}
    compiled = _compiled(path, frame, precision, how)
    return _one_by_one(functools.partial(compiled.create_infer_request().infer, frame))


def openvino_copies(path: Path, frame: Frame, cores: Sequence[int], precision: str = "f32") -> RunningEngine:
    """OpenVINO: for each core a copy on one thread, pinned to it."""
    # Not pinned by OpenVINO, which would pin all of them to the same core.
    how = {"INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1", "ENABLE_CPU_PINNING": "NO"}
    copies = [_compiled(path, frame, precision, how) for _ in cores]
    return copies_on(cores, [functools.partial(copy.create_infer_request().infer, frame) for copy in copies])


def ort_threads(path: Path, frame: Frame, cores: Sequence[int]) -> RunningEngine:
    """ONNX Runtime: one session on a thread for each core."""
    return _one_by_one(functools.partial(plain_session(path, len(cores)).run, None, frame))


def ort_parallel(path: Path, frame: Frame, cores: Sequence[int]) -> RunningEngine:
    """ONNX Runtime: one session that runs branches side by side, each operator on one thread."""
    return _one_by_one(functools.partial(plain_session(path, 1, side_by_side=len(cores)).run, None, frame))


def ort_copies(path: Path, frame: Frame, cores: Sequence[int]) -> RunningEngine:
    """ONNX Runtime: for each core a session on one thread, pinned to it."""
    sessions = [plain_session(path, 1) for _ in cores]
    return copies_on(cores, [functools.partial(session.run, None, frame) for session in sessions])


def plain_session(path: Path, threads: int, side_by_side: int = 1) -> Any:
    """An `onnxruntime.InferenceSession`: `threads` for each operator, and up to `side_by_side` operators at once."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if side_by_side > 1:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = side_by_side
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _compiled(path: Path, frame: Frame, precision: str, how: Mapping[str, str]) -> Any:
    """An `openvino.CompiledModel` of static shapes: the frame's, if the file leaves them open."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path))
    if model.is_dynamic():
        model.reshape({name: array.shape for name, array in frame.items()})
    return core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": precision, **how})


def _one_by_one(run_frame: Callable[[], object]) -> RunningEngine:
    return RunningEngine(lambda seconds: _run_for(seconds, run_frame), run_frame)


def copies_on(cores: Sequence[int], copies: Sequence[Callable[[], object]]) -> RunningEngine:
    """Run each copy in a thread of its own, pinned to a core."""

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

    return RunningEngine(run, copies[0])


def _run_for(seconds: float, run: Callable[[], object]) -> int:
    frames, ends_s = 0, time.monotonic() + seconds
    while time.monotonic() < ends_s:
        run()
        frames += 1
    return frames


PLAIN_ENGINES: Final[Mapping[str, Callable[[Path, Frame, Sequence[int]], RunningEngine]]] = MappingProxyType(
    {
        make.__name__: make
        for make in (ort_copies, ort_threads, ort_parallel, openvino_throughput, openvino_latency, openvino_copies)
    }
    | {
        f"{make.__name__}_bf16": functools.partial(make, precision="bf16")
        for make in (openvino_throughput, openvino_latency, openvino_copies)
    }
)
