"""The scales of a model, which int8 devices need to run it: found once by runs in fp32, and kept with the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from shisha_rt.array_file import Array, read_arrays
from shisha_rt.cache import sha256_of
from shisha_rt.checked import refuse
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import Device
from shisha_rt.measure.compile import Tell, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.scales import read_scales, scales_file
from shisha_rt.model.graph import Graph
from shisha_rt.model.scales import SCALED_OPS
from shisha_rt.process.job import run_job
from shisha_rt.tensors import NUMPY_OF

_LIMIT_S: Final = 600.0  # far more than any model has taken


def make_scales(compiled: Compiled, calibration: Path | None = None, tell: Tell = silent) -> str:
    """The name of the file of scales in the model's folder, which is made if it is missing.

    `calibration`: an .npz file with an array (frames, *shape) for each input, by name; by default frames are noise.
    Raises BadInput for any other kind of file, and Failure if the engine fails.
    """
    frames = [] if calibration is None else [str(calibration)]
    name = scales_file("" if calibration is None else _checked(calibration, compiled.model.graph))
    if read_scales(compiled.model_folder, name) is None:
        tell(f"finding the scales of {compiled.model.name} in int8 (once; kept for the next start)")
        failed = f"{compiled.model.name}: its scales in int8 could not be found"
        arguments = str(compiled.model_folder), name, *frames
        run_job("stages.jobs.find_scales", *arguments, failed=failed, limit_s=_LIMIT_S)
    return name


def check_int8(device: Device) -> None:
    """Raises BadInput for an int8 device that is not described, not of ONNX Runtime, or has ops without int8 form."""
    ops = [*(family.ops or {"*"} for family in device.families), *(fusion.ops for fusion in device.fusions)]
    others = set[str]().union(*ops) - SCALED_OPS
    if device.engine != "onnxruntime":
        fault = f'engine = "{device.engine}": expected "onnxruntime"'
    elif not device.described:
        fault = "no [[family]]: expected a described device"
    elif others:
        fault = f"ops: {_listed(others)}: expected among {_listed(SCALED_OPS)}"
    else:
        return
    raise BadInput(f"{device.source}: {fault}, as its precision is int8", Error.DEVICE_UNFIT)


def _checked(path: Path, graph: Graph) -> str:
    """A digest of the frames in a file. Raises BadInput unless all of them fit the graph's inputs."""
    content = read_arrays(path)
    refuse(_faults(content if isinstance(content, Mapping) else {}, graph), str(path), Error.WRONG_FRAMES)
    return sha256_of(path)


def _faults(arrays: Mapping[str, Array], graph: Graph) -> Iterator[str]:
    wanted = {tensor.name: tensor for tensor in graph.inputs}
    if arrays.keys() != wanted.keys():
        yield f"has {_listed(arrays)}: expected an array for each input: {_listed(wanted)}"
        return
    for name, array in arrays.items():
        shape, dtype = wanted[name].shape, NUMPY_OF[wanted[name].datatype]
        if array.dtype != dtype or array.shape[1:] != shape or not len(array):
            expected = f"{dtype} of (frames, {', '.join(map(str, shape))})"
            yield f"{name} is {array.dtype} of {array.shape}: expected {expected}"
        if dtype.kind == "f" and not np.isfinite(array).all():
            yield f"{name} has values that are infinite or NaN: expected finite ones"
    if len({len(array) for array in arrays.values()}) > 1:
        yield "expected as many frames of each input"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
