"""ONNX Runtime's profile of a segment: a file with one event for each node and run.

Its nodes are those of the optimised graph, which the session saves as well; `covered` tells which operators of the
cleaned graph each node covers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort

from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.fused import host
from stages.engines.onnxruntime.covered import covered_operators
from stages.engines.onnxruntime.options import open_session, optimising_options
from stages.engines.session import Threads
from stages.noise import noise_for

_NODE_SUFFIX: Final = "_kernel_time"


def ort_operator_times(model: CleanModel, segment: Segment, threads: Threads, rounds: int) -> tuple[float, ...]:
    """See `operator_times`."""
    graph = model.graph_of(segment)
    feeds = noise_for(graph.inputs, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        options = _profiled(optimising_options(str(model.folder), threads), Path(folder))
        session = open_session(model.cut(segment).SerializeToString(), options)
        for _ in range(1 + rounds):  # the first run allocates: it does not count
            session.run(segment.outputs, feeds)
        events = _node_events(json.loads(Path(session.end_profiling()).read_text()))
        optimised = onnx.load(Path(folder) / "optimised.onnx", load_external_data=False).graph
    covered = zip(optimised.node, covered_operators(graph, optimised), strict=True)
    operator_of = {node.name: host(graph, sorted(operators)) for node, operators in covered if operators}
    times_s = [0.0] * len(graph.operators)
    operator = 0
    for name, time_s in events[len(events) // (1 + rounds) :]:
        operator = operator_of.get(name, operator)  # an unknown node counts as part of the one before
        times_s[operator] += time_s / rounds
    return tuple(times_s)


def _profiled(options: ort.SessionOptions, folder: Path) -> ort.SessionOptions:
    """Profile into `folder`, and save the optimised graph there, its weights in a file apart."""
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    return options


def _node_events(events: Iterable[dict[str, Any]]) -> list[tuple[str, float]]:
    """Name and seconds of each run of a node, in the order in which they ran."""
    return [
        (event["name"].removesuffix(_NODE_SUFFIX), event["dur"] * 1e-6)
        for event in sorted((event for event in events if event.get("cat") == "Node"), key=lambda event: event["ts"])
        if event["name"].endswith(_NODE_SUFFIX)
    ]
