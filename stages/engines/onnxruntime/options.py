"""How ONNX Runtime is set up here: no spinning threads, no thread of its own beyond what the place allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnxruntime as ort

SPIN_US: Final = 2000
"""How long threads that spin wait for the next piece of work before they sleep: longer than between two operators."""


def base_options(threads: int, cores: Sequence[int] = (), *, spin: bool = False) -> ort.SessionOptions:
    """Sequential execution on `threads` threads, quiet, and idle when there is nothing to do; with `spin` soon after.

    One of them is the caller's. `cores` are for all of them, the caller's first; none: the others run wherever the
    process may when they are made.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    if spin:
        options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    if cores and threads > 1:
        each = [(core,) for core in cores[1:]] if threads == len(cores) else [tuple(cores)] * (threads - 1)
        affinities = ";".join(
            ",".join(str(1 + core) for core in session_cores) for session_cores in each
        )  # it counts cores from 1
        options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
    return options


def as_built_options(
    threads: int, weights_folder: str, cores: Sequence[int] = (), *, spin: bool = False
) -> ort.SessionOptions:
    """Session options for an already optimised graph: run it as it stands, its weights mapped from `weights_folder`."""
    return _beside(weights_folder, base_options(threads, cores, spin=spin), ort.GraphOptimizationLevel.ORT_DISABLE_ALL)


def optimising_options(
    threads: int, weights_folder: str, cores: Sequence[int] = (), *, spin: bool = False
) -> ort.SessionOptions:
    """Full optimisation of a graph given as bytes, whose weights lie in `weights_folder`."""
    return _beside(weights_folder, base_options(threads, cores, spin=spin), ort.GraphOptimizationLevel.ORT_ENABLE_ALL)


def _beside(weights_folder: str, options: ort.SessionOptions, level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    options.graph_optimization_level = level
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", weights_folder)
    return options
