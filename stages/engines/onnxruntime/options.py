"""How ONNX Runtime is set up here: no spinning threads, no thread of its own beyond what the place allows."""

from __future__ import annotations

import onnxruntime as ort


def base_options(threads: int) -> ort.SessionOptions:
    """Sequential execution on `threads` threads, quiet, and idle when there is nothing to do."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def as_built_options(threads: int, weights_folder: str) -> ort.SessionOptions:
    """For a graph that is optimised already: run it as it stands, its weights mapped from `weights_folder`."""
    return _beside(weights_folder, threads, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


def optimising_options(threads: int, weights_folder: str) -> ort.SessionOptions:
    """Full optimisation of a graph given as bytes, whose weights lie in `weights_folder`."""
    return _beside(weights_folder, threads, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def _beside(weights_folder: str, threads: int, level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    options = base_options(threads)
    options.graph_optimization_level = level
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights_folder)
    return options
