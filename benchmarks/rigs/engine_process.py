"""A plain engine with a whole network, in a separate process: the reference for the daemon.

Frames are in memory: nothing is sent or received, and answers are not checked. `stages/engines/plain.py` has the
engines. Orders: `seconds`; with `pause_s`, too, frames run one by one, see `one_by_one`.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.rigs.child_process import say
from benchmarks.rigs.one_by_one import one_by_one
from shisha_rt.tensors import NUMPY_OF
from stages.engines.openvino.frames import network_of_frames
from stages.engines.openvino.session import compile_network
from stages.engines.plain import PLAIN_ENGINES, Frame, RunningEngine, copies_on

_WARM_UP_S: Final = 0.3

_TOGETHER: Final = 4
_BATCHES: Final = "openvino_batches"
"""As `openvino_copies`, with batches of four frames."""
PLAIN: Final = ("ort_copies", "ort_threads", "openvino_copies", _BATCHES, "openvino_latency", "openvino_throughput")
"""All engines of the race."""
ALONE: Final = ("ort_threads", "openvino_latency")
"""Engines that run one frame at a time, for the least latency."""


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    os.sched_setaffinity(0, settings["cores"])
    generator = np.random.default_rng(0)
    frame: Frame = {
        tensor["name"]: generator.standard_normal(tensor["shape"]).astype(NUMPY_OF[tensor["datatype"]])
        for tensor in settings["inputs"]
    }
    if settings["rival"] == _BATCHES:
        engine = _in_batches(Path(settings["cleaned"]), settings["cores"])
    else:
        engine = PLAIN_ENGINES[settings["rival"]](Path(settings["path"]), frame, settings["cores"])
    engine.run(_WARM_UP_S)
    say(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "pause_s" in order:
            say(**one_by_one(engine.one, **order))
            continue
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        frames = engine.run(order["seconds"])
        say(
            frame_s=(time.monotonic() - started_s) / frames,
            cpu_s=(time.process_time() - started_cpu_s) / frames,
            total_frames=frames,
        )
    return 0


def _in_batches(cleaned: Path, cores: Sequence[int]) -> RunningEngine:
    """Clean a file that was exported for one frame, and change its shapes for batches, as the daemon does."""
    runs = []
    for _ in cores:
        request = compile_network(network_of_frames(cleaned, _TOGETHER, _TOGETHER), "fp32", 1).create_infer_request()
        frames = {
            position: np.random.default_rng(0).standard_normal(port.shape).astype(port.element_type.to_dtype())
            for position, port in enumerate(request.model_inputs)
        }
        runs.append(functools.partial(request.infer, frames))
    copies = copies_on(cores, runs)
    return RunningEngine(lambda seconds: _TOGETHER * copies.run(seconds), copies.one)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
