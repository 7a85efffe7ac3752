"""How exact emulated places are: `python -m benchmarks emulation`.

Three parts, each on real workers that are driven without a daemon or queues between stages:

- `pace`: all places of a machine run whole frames of a network at saturation at the same time. Wall time per frame is
  compared with the mean target, the engine's mean CPU time over the place's speed; so time lost between two frames
  counts.
- `budget`: places that share one memory run a segment that is memory-bound. Their total bytes per second of wall time
  are compared with the memory's bandwidth.
- `triad`: STREAM's triad, a = b + q c, as a segment of each place's worker, one place at a time, against the bandwidth
  of its memory. The segment is an ONNX network of a Mul and an Add; as in STREAM three arrays count, though
  the engine keeps q c in a fourth. On `demo` with an eighth of its bandwidths: a core of this host at a place's speed
  has to be able to ask for more than its memory gives.

All figures are of emulated places on this host's cores. Other work on them affects `pace`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

from benchmarks.report.results import Row, show
from benchmarks.rigs.stage_rig import Loaded, StageRig, stage_rig
from shisha_rt.machine.config.machine_file import check_runnable, load_machine, parse_machine
from shisha_rt.machine.machine import Machine, target_s
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.zoo import resolve_model

MODEL: Final = "squeezenet"
_PACE_MACHINES: Final = ("c1", "c2", "c6")  # two, four and eight places
_TRIAD_MACHINE: Final = "demo"
_TRIAD_SLOWER: Final = 8
_SHARERS: Final = (2, 4)
_SHARED_BYTES_PER_S: Final = 2e9
_AIM_PERCENT: Final = {"pace": 1.0, "budget": 3.0, "triad": 3.0}
_MEGA: Final = 2**20
_SLOTS: Final = 2


def triad(folder: Path, elements: int) -> Path:
    """STREAM's triad on float32 arrays as an ONNX network: 12 bytes an element, as STREAM counts them."""
    b, c = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, elements]) for name in "bc")
    a = helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, elements])
    q = numpy_helper.from_array(np.full(1, 3, np.float32), "q")
    nodes = [helper.make_node("Mul", ["c", "q"], ["qc"]), helper.make_node("Add", ["b", "qc"], ["a"])]
    graph = helper.make_graph(nodes, "triad", [b, c], [a], [q])
    path = folder / f"triad-{elements}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def sharing_machine(places: int) -> Machine:
    """Equal places on two cores, and one memory that limits all of them."""
    text = f'[[memory]]\nname = "shared"\nbandwidth_bytes_per_s = {_SHARED_BYTES_PER_S}\n' + "".join(
        f'[[place]]\nname = "place{i}"\ncores = [{i % 2}]\nspeed = {1.6 / places:g}\n' for i in range(places)
    )
    machine = parse_machine(text, name=f"{places} sharers", source="benchmarks/live/emulation.py")
    check_runnable(machine)
    return machine


def pace(model: str, machine_name: str, seconds: float) -> Iterator[Row]:
    machine = load_machine(machine_name)
    check_runnable(machine)
    compiled = compile_model(resolve_model(f"zoo:{model}"))
    with stage_rig(compiled, machine, _SLOTS) as rig:
        stages = _load_everywhere(rig, compiled, machine)
        for place, stage, rate in zip(machine.places, stages, rig.at_once(stages, seconds), strict=True):
            target = target_s(
                rate.cpu_s,
                stage.prepared.frame_bytes,
                threads=place.threads,
                speed=place.speed,
                bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s(place),
            )
            yield _row("pace", machine.name, place.name, "ms/frame", target * 1e3, rate.frame_s * 1e3)


def budget(compiled: Compiled, places: int, seconds: float) -> Row:
    machine = sharing_machine(places)
    with stage_rig(compiled, machine, _SLOTS) as rig:
        stages = _load_everywhere(rig, compiled, machine)
        rates = rig.at_once(stages, seconds)
        moved = sum(stage.prepared.frame_bytes / rate.frame_s for stage, rate in zip(stages, rates, strict=True))
    return _row("budget", machine.name, "all", "GB/s", _SHARED_BYTES_PER_S / 1e9, moved / 1e9)


def triad_on_each(compiled: Compiled, seconds: float) -> Iterator[Row]:
    machine = load_machine(_TRIAD_MACHINE)
    slower = [
        replace(m, bandwidth_bytes_per_s=(m.bandwidth_bytes_per_s or 0) / _TRIAD_SLOWER) for m in machine.memories
    ]
    machine = replace(machine, name=f"{machine.name} / {_TRIAD_SLOWER}", memories=tuple(slower))
    check_runnable(machine)
    with stage_rig(compiled, machine, _SLOTS) as rig:
        for place, stage in zip(machine.places, _load_everywhere(rig, compiled, machine), strict=True):
            bandwidth = machine.bandwidth_bytes_per_s(place)
            assert bandwidth is not None
            moved = stage.prepared.frame_bytes / rig.alone(stage, seconds).frame_s
            yield _row("triad", machine.name, place.name, "GB/s", bandwidth / 1e9, moved / 1e9)


def _load_everywhere(rig: StageRig, compiled: Compiled, machine: Machine) -> list[Loaded]:
    return [rig.load(worker, 0, len(compiled.layers) - 1) for worker in range(len(machine.places))]


def _row(what: str, machine: str, place: str, unit: str, target: float, measured: float) -> Row:
    return {
        "what": what,
        "machine": machine,
        "place": place,
        "emulated": "yes",
        "unit": unit,
        "target": target,
        "measured": measured,
        "error %": 100 * (measured / target - 1),
        "aim %": _AIM_PERCENT[what],
    }


def emulation(
    model: Annotated[str, typer.Option(help="The network of the zoo whose frames are paced.")] = MODEL,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each measurement.")] = 4.0,
) -> None:
    """How exactly emulated places keep their speeds and memories their bandwidths."""
    rows: list[Row] = []
    for machine in _PACE_MACHINES:
        print(f"emulation: pace on {machine} ...", flush=True)
        rows += pace(model, machine, seconds)
    with tempfile.TemporaryDirectory() as folder:
        shared, large = (compile_model(triad(Path(folder), size)) for size in (_MEGA, 4 * _MEGA))
        for places in _SHARERS:
            print(f"emulation: a memory shared by {places} places ...", flush=True)
            rows.append(budget(shared, places, seconds))
        print("emulation: triad on each place ...", flush=True)
        rows += triad_on_each(large, seconds / 2)
    show("Emulated places and memories against what they were told", rows)
