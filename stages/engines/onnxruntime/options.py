"""How ONNX Runtime is set up here: no spinning threads unless asked for, and only as many as the place allows."""

from __future__ import annotations

from typing import Final

import onnxruntime as ort

from stages.engines.session import ONE_THREAD, Threads

_FATAL: Final = 4
"""Least severity that the engine logs: errors are raised, and reported by the code that catches them."""
SPIN_US: Final = 2000
"""How long spinning threads wait for work before they sleep: longer than the time between two operators."""


def base_options(threads: Threads = ONE_THREAD) -> ort.SessionOptions:
    """Sequential execution, a quiet log, and threads that sleep without work; if they spin, after `SPIN_US`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads.count
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(threads.spin)))
    if threads.spin:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    if threads.cores and threads.count > 1:
        others = threads.others_cores
        each = [(core,) for core in others] if len(others) < len(threads.cores) else [others] * (threads.count - 1)
        affinities = ";".join(",".join(str(1 + core) for core in own) for own in each)  # the engine counts from 1
        options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
    return options


def as_built_options(weights_folder: str, threads: Threads = ONE_THREAD) -> ort.SessionOptions:
    """Session options for an already optimised graph: run it as it stands, its weights mapped from `weights_folder`."""
    return _beside(weights_folder, base_options(threads), ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


def optimising_options(weights_folder: str, threads: Threads = ONE_THREAD) -> ort.SessionOptions:
    """Full optimisation of a graph given as bytes, whose weights lie in `weights_folder`."""
    return _beside(weights_folder, base_options(threads), ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def _beside(weights_folder: str, options: ort.SessionOptions, level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    options.graph_optimization_level = level
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights_folder)
    return options


def open_session(model: bytes | str, options: ort.SessionOptions) -> ort.InferenceSession:
    """The engine's session of a serialised model, or of its file."""
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
