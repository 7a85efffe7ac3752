"""Real networks to run without a download: `zoo:resnet50`.

Their topologies are those that the `onnx` package ships, with constant weights, and those in `topologies`. They get
weights that make their answers depend on their input on first use, in a process of the data plane (this one never
runs a model), and are kept in the user's cache. Shell.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import onnx

from shisha_rt.cache import cache_folder, publish
from shisha_rt.errors import BadInput
from shisha_rt.graph.topologies.catalogue import TOPOLOGIES
from shisha_rt.job import run_job

SHIPPED: Final = (
    "alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
"""With the `onnx` package."""
NAMES: Final = tuple(sorted((*SHIPPED, *TOPOLOGIES)))
_PREFIX: Final = "zoo:"
_WEIGHTS_VERSION: Final = "v1"  # raise it when the weights would come out differently


def resolve_model(text: str, on_progress: Callable[[str], None] | None = None) -> Path:
    """The file that a MODEL argument means: `zoo:NAME`, or a path (which may not exist)."""
    if text.startswith(_PREFIX):
        return zoo_path(text.removeprefix(_PREFIX), on_progress)
    return Path(text)


def zoo_path(name: str, on_progress: Callable[[str], None] | None = None) -> Path:
    """The network's file, built first if need be (seconds; VGG-19 takes the longest and 575 MB).

    Raises BadInput for an unknown name, Failure where it cannot be built.
    """
    if name not in NAMES:
        raise BadInput(f"{_PREFIX}{name}: no such network; expected one of {', '.join(NAMES)}")

    def build(folder: Path) -> None:
        if on_progress:
            on_progress(f"building {_PREFIX}{name} (once)")
        _build(_topology(name), folder / f"{name}.onnx")

    return publish(cache_folder() / "zoo" / _WEIGHTS_VERSION / name, build) / f"{name}.onnx"


def _topology(name: str) -> bytes:
    """An ONNX file with constants for weights."""
    if name in TOPOLOGIES:
        return bytes(TOPOLOGIES[name]().SerializeToString())
    file = f"light_{'bvlc_' if name == 'alexnet' else ''}{name}.onnx"
    return (Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / file).read_bytes()


def _build(topology: bytes, target: Path) -> None:
    failed = f"{_PREFIX}{target.stem}: could not be built"
    run_job("stages.jobs.zoo_weights", str(target), failed=failed, given=topology)
