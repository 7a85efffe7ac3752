"""A model made ready to be cut and served: cleaned, grouped into layers, optimised once by the engine.

The engine runs in a process of its own (the control plane never loads one), and its work is kept in the user's cache
under the model's content, the engine's version and the kind of processor: a second start finds it there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shisha_rt.cache import cache_folder, publish
from shisha_rt.fabric import model_index
from shisha_rt.fabric.model_index import ModelIndex
from shisha_rt.fabric.plain_index import PLAIN_VERSION, plain_index
from shisha_rt.graph.layers import Layer, group_layers
from shisha_rt.graph.reader.onnx_reader import Model, read_model
from shisha_rt.job import run_job


@dataclass(frozen=True)
class Compiled:
    """`model_folder` holds the cleaned model, `engine_folder` the index of its cuts and the engine's optimised form."""

    model: Model
    layers: tuple[Layer, ...]
    index: ModelIndex
    model_folder: Path
    engine_folder: Path

    @property
    def legal_cuts(self) -> frozenset[int]:
        return frozenset(self.index.legal_cuts)


def compile_model(
    path: Path, dims: Mapping[str, int], on_progress: Callable[[str], None] | None = None, *, plain: bool = False
) -> Compiled:
    """Read, clean and optimise the model at `path`. Raises `BadInput` for a bad file, `Failure` if the engine fails.

    `plain`: it is served from the cleaned graph, so that no engine optimises it and `engine_folder` has only its index.
    """
    tell = on_progress or (lambda _: None)
    tell(f"reading {path.name}")
    model = read_model(path, dims)
    layers = group_layers(model.graph)
    model_folder = publish(cache_folder() / "models" / model.key, model.save)

    def write_plain_index(target: Path) -> None:
        model_index.write_index(plain_index(model.graph, layers), target)

    def optimise(target: Path) -> None:
        tell(f"optimising {model.name} (once; kept for the next start)")
        failed = "the engine could not optimise the model"
        run_job("stages.jobs.compile", str(model_folder), str(target), failed=failed)

    name, build = (f"plain-{PLAIN_VERSION}", write_plain_index) if plain else (_engine_key(), optimise)
    engine_folder = publish(cache_folder() / "engines" / model.key / name, build)
    return Compiled(model, layers, model_index.read_index(engine_folder), model_folder, engine_folder)


def _engine_key() -> str:
    """The engine's version and this kind of processor: an optimised graph may fit no other."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else platform.processor()
    flags = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), text)
    digest = hashlib.sha256(flags.encode()).hexdigest()[:12]
    return f"onnxruntime-{importlib.metadata.version('onnxruntime')}-{platform.machine()}-{digest}"
