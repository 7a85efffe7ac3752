"""`python -m stages.jobs.find_scales MODEL_FOLDER`: find the scales of a cleaned model in int8, and keep them with it.

The calibration frames are of noise and the same each time, and the model runs on them in fp32.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from shisha_rt.fabric.scales import write_scales
from shisha_rt.graph.graph import Graph
from shisha_rt.graph.scales import scaled_tensors, tensor_exponents
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.magnitudes import largest_magnitudes
from stages.engines.session import Array
from stages.jobs.noise import noise

_FRAMES: Final = 8
_SEED: Final = 8  # no frame of noise that something is measured on has it


def main(arguments: list[str]) -> int:
    (model_folder,) = arguments
    find_scales(Path(model_folder))
    return 0


def find_scales(folder: Path) -> None:
    model = CleanModel(folder)
    tensors = [name for name in scaled_tensors(model.graph) if model.graph.tensors[name].size_bytes]
    largest = largest_magnitudes(model, tensors, _frames(model.graph))
    write_scales(tensor_exponents(model.graph, largest), folder)


def _frames(graph: Graph) -> Iterator[dict[str, Array]]:
    generator = np.random.default_rng(_SEED)
    for _ in range(_FRAMES):
        yield {tensor.name: noise(tensor.shape, tensor.datatype, generator) for tensor in graph.inputs}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
