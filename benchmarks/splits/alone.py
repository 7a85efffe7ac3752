"""Networks of one heavy layer, split over real cores, compared with a team of these cores and with plain engines.

Frames come one after the other from inside the daemon, in a slot that has the input already, as with a plain engine.
Times of the daemon's frames include hand-overs. All sides take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import psutil
from onnx import helper

from benchmarks.report.results import Row, Spread
from benchmarks.rigs.cache_place import fresh_cache
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.daemons import Rig, forced
from benchmarks.splits.plans import Shared, nearest_shares, plan_with, way_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.costs_of_model import layer_costs, told_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.split_plan import split_plan
from shisha_rt.tensors import NUMPY_OF

AIM: Final = 1.1
LARGE_S: Final = 5e-3
"""The aim is for layers that take longer than this on one core."""
_WARM_UP: Final = 3
_FREE_TIMES: Final = 6
"""Free memory must be at least the size of the weights times this."""


Features = Mapping[str, int]
"""Of a convolution: rows H and columns W of the output, channels C, filters N, kernel k, stride s."""


@dataclass(frozen=True, slots=True)
class LayerAlone:
    """A network of one layer: a Conv by its features, or a Gemm of one row by its (inner, columns)."""

    name: str
    conv: Features | None = None
    gemm: tuple[int, int] = (0, 0)
    axes: tuple[str, ...] = ("channels",)

    @property
    def weight_bytes(self) -> int:
        if self.conv is None:
            return 4 * self.gemm[0] * self.gemm[1]
        return 4 * self.conv["C"] * self.conv["k"] ** 2 * self.conv["N"]

    def write(self, path: Path) -> None:
        if self.conv is not None:
            write_convolution(self.conv, path)
        else:
            write_product(*self.gemm, path)


def _conv(size: int, channels: int, kernel: int, filters: int) -> Features:
    return {"H": size, "W": size, "C": channels, "k": kernel, "N": filters, "s": 1}


FULL: Final = (
    LayerAlone("VGG conv1_2", _conv(224, 64, 3, 64), axes=("channels", "rows", "inputs")),
    LayerAlone("VGG conv3_2", _conv(56, 256, 3, 256), axes=("channels", "rows", "inputs")),
    LayerAlone("VGG conv5_2", _conv(14, 512, 3, 512), axes=("channels", "rows")),
    LayerAlone("AlexNet fc6", gemm=(9216, 4096), axes=("columns", "inputs")),
    LayerAlone("Gemm 8192 x 8192", gemm=(8192, 8192), axes=("columns",)),
    LayerAlone("VGG fc6, Gemm 25088 x 4096", gemm=(25088, 4096), axes=("columns",)),
    LayerAlone("GP Figure 3", _conv(112, 16, 1, 32), axes=("channels", "rows")),
)
QUICK: Final = (FULL[1], FULL[3], FULL[-1])


def write_convolution(features: Features, path: Path) -> None:
    """Write one Conv with a bias, of one image with H s rows and W s columns, padded so that the output is H x W."""
    height, width, channels, kernel, filters, stride = (features[name] for name in ("H", "W", "C", "k", "N", "s"))
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((filters, channels, kernel, kernel), np.float32)
    bias = generator.standard_normal(filters, np.float32)
    before, after = divmod(max(0, kernel - stride), 2)
    pads = [before] * 2 + [before + after] * 2
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, strides=[stride] * 2, name="conv")
    shapes = {"x": (1, channels, height * stride, width * stride), "y": (1, filters, height, width)}
    _save(node, shapes, {"w": weights, "b": bias}, path)


def write_product(inner: int, columns: int, path: Path) -> None:
    """Write a network of one Gemm with a bias, of one row."""
    weights = np.random.default_rng(0).standard_normal((columns, inner), np.float32) / np.float32(inner**0.5)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, name="gemm")
    shapes = {"x": (1, inner), "y": (1, columns)}
    _save(node, shapes, {"w": weights, "b": np.zeros(columns, np.float32)}, path)


def _save(node: Any, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Any], path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items())
    arrays = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], path.stem, [x], [y], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def alone_row(layer: LayerAlone, seconds: float, rounds: int) -> Row | None:
    """A row for one layer run in all ways; None: this host lacks the memory for it."""
    if psutil.virtual_memory().available < _FREE_TIMES * layer.weight_bytes:
        return None
    machine = load_machine("this-machine")
    with fresh_cache(), Rig() as rig:  # the usual cache would keep gigabytes
        path = rig.folder() / f"{''.join(letter if letter.isalnum() else '_' for letter in layer.name)}.onnx"
        layer.write(path)
        ready = make_ready(path, machine, on_progress=print)
        proposed = _proposed(ready)
        sides = _sides(rig, path, ready, layer.axes)
        taken = [{name: run(seconds) for name, run in sides.items()} for _ in range(rounds)]
    splits = [name for name in sides if name.startswith("split")]
    best = min(splits, key=lambda name: Spread.of(by_side[name][0] for by_side in taken).median)
    row: dict[str, object] = {"layer": layer.name}
    for name in ("one core", "team", *_ENGINES):
        row[f"{name} ms"] = Spread.of(1e3 * by_side[name][0] for by_side in taken)
    for axis in _AXES:
        name = f"split by {axis}"
        row[f"{name} ms"] = Spread.of(1e3 * by_side[name][0] for by_side in taken) if name in splits else None
    row["best split"] = best.removeprefix("split by ")
    for other in ("one core", "team", "ORT, 2 threads"):
        row[f"split / {other}"] = Spread.of(by_side[best][0] / by_side[other][0] for by_side in taken)
    row["slowest shard ms"] = Spread.of(1e3 * max(by_side[best][1]) for by_side in taken)
    row["planned"] = proposed
    return row


_AXES: Final = ("channels", "columns", "rows", "inputs")
_ENGINES: Final = {"ORT, 2 threads": 2, "ORT, 1 thread": 1}


_Taken = tuple[float, Sequence[float]]
"""Seconds of a frame, and of its stages."""


def _sides(rig: Rig, path: Path, ready: ModelOnMachine, axes: Sequence[str]) -> dict[str, Callable[[float], _Taken]]:
    """All ways to run a layer for some seconds, by name: plans of one daemon, and plain engines."""
    places = [place.name for place in ready.machine.places][:2]
    cores = [core for place in ready.machine.places[:2] for core in place.cores]
    layers = len(ready.compiled.layers)
    ways = tuple(ready.rules.splits.values())
    plans = {
        "one core": Plan.of([(0, layers - 1, places[0])]),
        "team": Plan.chain([(0, layers - 1, [places])]),
    }
    for axis in axes:
        way = way_of(ways, 0, axis)
        shared = Shared(way, nearest_shares(way, (0.5, 0.5)), tuple(places))
        plans[f"split by {axis}"] = plan_with(layers, places[0], [shared])
    inputs = [
        {"name": tensor.name, "shape": tensor.shape, "dtype": NUMPY_OF[tensor.datatype].str}
        for tensor in ready.compiled.model.graph.inputs
    ]
    daemon = rig.enter_context(forced(str(path), ready.machine.source))

    def by_plan(plan: Plan, seconds: float) -> _Taken:
        daemon.take(plan)
        burst = daemon.burst(seconds, copied=False, warm_up=_WARM_UP)
        return burst["latency_s"], burst["stage_s"]

    def by_engine(engine: ChildProcess, seconds: float) -> _Taken:
        return engine.ask(seconds=seconds)["frame_s"], ()

    options = {"rival": "ort_threads", "path": str(path), "inputs": inputs}
    engines = {
        name: rig.child("engine_process", **options, cores=cores[:threads]) for name, threads in _ENGINES.items()
    }
    return {
        **{name: partial(by_plan, plan) for name, plan in plans.items()},
        **{name: partial(by_engine, engine) for name, engine in engines.items()},
    }


def _proposed(ready: ModelOnMachine) -> str:
    """The planner's plan for the least latency without teams: with a split, or None."""
    costs = told_costs(layer_costs(ready, print), 1.0, ready.rules.splits.values())
    planned = split_plan(costs, exact_plan(costs, Goal(objective="latency")), Goal(objective="latency"))
    return "infeasible" if planned.plan is None else str(planned.plan)
