"""A process on one core that times convolutions as workers run them: the daemon's own sessions, on one thread."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.rigs.child_process import say
from benchmarks.splits.convolutions import write_convolution
from benchmarks.splits.energy import energy_counters, joules_between
from shisha_rt.machine.config.device_files import parse_device
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.device import Device
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.placement.segments import segment
from shisha_rt.tensors import NUMPY_OF
from stages.built.clean_model import CleanModel
from stages.engines.device_session import build_session, load_engines
from stages.engines.session import Bound, untimed

ROUNDS: Final = 9
ROUND_S: Final = 0.007


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    devices = {name: _device(name) for name in settings["devices"]}
    load_engines(device.engine for device in devices.values())
    os.sched_setaffinity(0, {settings["core"]})
    say(counters=list(energy_counters()))
    for line in sys.stdin:
        features = json.loads(line)["features"]
        with tempfile.TemporaryDirectory() as folder:
            write_convolution(features, Path(folder) / "conv.onnx")
            read_model(Path(folder) / "conv.onnx").save(Path(folder))
            model = CleanModel.read(Path(folder))
            say(**{name: _measured(_bound(model, device)) for name, device in devices.items()})
    return 0


def _device(name: str) -> Device:
    path = shipped_configs("devices")[name]
    return parse_device(path.read_text(), name=name, source=str(path))


def _bound(model: CleanModel, device: Device) -> Bound:
    whole = segment(model.graph, 0, len(model.graph.operators) - 1, device.name)
    generator = np.random.default_rng(1)
    arrays = {
        tensor.name: generator.standard_normal(tensor.shape).astype(NUMPY_OF[tensor.datatype])
        for tensor in (*model.graph.inputs, *model.graph.outputs)
    }
    return build_session(model, whole, device).bind(arrays)


def _measured(run: Bound) -> dict[str, float | None]:
    """CPU seconds of a run, the least of rounds of about `ROUND_S`, as other processes affect its caches; and mean
    joules, if they are counted.
    """
    run(untimed)
    once_s = _rounds_s(run, 1, 3)
    runs = max(1, round(ROUND_S / max(once_s, 1e-6)))
    before = energy_counters()
    taken_s = _rounds_s(run, runs, ROUNDS)
    used_j = joules_between(before, energy_counters()) if before else None
    return {"s": taken_s, "j": None if used_j is None else used_j / (runs * ROUNDS)}


def _rounds_s(run: Bound, runs: int, rounds: int) -> float:
    found = []
    for _ in range(rounds):
        began_s = time.process_time()
        for _ in range(runs):
            run(untimed)
        found.append((time.process_time() - began_s) / runs)
    return min(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
