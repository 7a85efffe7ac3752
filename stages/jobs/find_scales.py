"""`python -m stages.jobs.find_scales MODEL_FOLDER FILE [FRAMES.npz]`: find a model's int8 scales, and store them.

The cleaned model runs in fp32 on the calibration frames; without FRAMES.npz these are noise, the same each time. FILE
is a name in the model's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from shisha_rt.messages.scales import scales_file, write_scales
from shisha_rt.model.scales import scaled_tensors, tensor_exponents
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.magnitudes import largest_magnitudes
from stages.engines.session import Array
from stages.noise import noise_for

_FRAMES: Final = 8
_SEED: Final = 8  # no measurement uses noise of this seed


def main(arguments: list[str]) -> int:
    folder, name, *frames = arguments
    find_scales(Path(folder), name, Path(frames[0]) if frames else None)
    return 0


def find_scales(folder: Path, name: str = scales_file(), frames: Path | None = None) -> None:
    model = CleanModel.read(folder)
    tensors = [tensor for tensor in scaled_tensors(model.graph) if model.graph.tensors[tensor].size_bytes]
    rng = np.random.default_rng(_SEED)
    noise = (noise_for(model.graph.inputs, rng) for _ in range(_FRAMES))
    calibration = noise if frames is None else _read(frames)
    largest = largest_magnitudes(model, tensors, calibration)
    write_scales(tensor_exponents(model.graph, largest), folder, name)


def _read(path: Path) -> Iterator[dict[str, Array]]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for frames in zip(*arrays.values(), strict=True):
        yield dict(zip(arrays, frames, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
