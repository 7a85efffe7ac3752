"""A model made ready to be cut and served: cleaned, grouped into layers, optimised once by the engine.

The engine runs in a separate process (the control plane never loads one). Its result is kept in the user's cache, keyed
by the model's content, the engine's version and the kind of processor, so a second start finds it there. The process
also runs the optimised model: an engine may crash on one `Form` of a model (with weights prepacked, say) and run
another, so forms are tried in turn.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import logging
import os
import platform
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, get_args

import onnx

from shisha_rt.cache import cache_folder, fault_in, publish
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.host.processor import instruction_sets
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.batches import follow_batch
from shisha_rt.model.free_batch import integers_of
from shisha_rt.model.graph import ModelGraph
from shisha_rt.model.index import FORM_EFFECT, INDEX_VERSION, Form
from shisha_rt.model.indexing import plain_index, with_batches, with_splits
from shisha_rt.model.input_sizes import ANY_SIZES, InputSizes
from shisha_rt.model.layer_kinds import LayerKind
from shisha_rt.model.layers import Layer, group_layers
from shisha_rt.model.reader import index_file
from shisha_rt.model.reader.onnx_reader import Model, read_model, read_saved
from shisha_rt.process.job import JobFailed, run_job

log = logging.getLogger(__name__)

Tell = Callable[[str], None]
"""Hears of progress, in words."""

# Far longer than any model has needed in any form.
_LIMIT_S: Final = 300.0
_LIMIT_S_PER_BYTE: Final = 1e-6

_TRIES: Final = 3
_ENDED_FROM_OUTSIDE: Final = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL}  # SIGKILL: memory was short


def silent(_: str) -> None:
    """A `Tell` that tells nobody."""


def compile_model(
    path: Path,
    sizes: InputSizes = ANY_SIZES,
    tell: Tell = silent,
    *,
    plain: LayerKind | None = None,
) -> Compiled:
    """Read, clean and optimise the model at `path`. Raises `BadInput` for a bad file, `Failure` if the engine fails.

    `plain`: the model is served from the cleaned graph, in layers of this kind: no engine optimises it, and
    `engine_folder` has only its index. A cache that is emptied meanwhile is filled again.
    """
    for _ in range(_TRIES - 1):
        try:
            return _compile_model(path, sizes, tell, plain)
        except (Failure, FileNotFoundError) as error:
            if not isinstance(error.__cause__ or error, FileNotFoundError):
                raise
    return _compile_model(path, sizes, tell, plain)


def _compile_model(path: Path, sizes: InputSizes, tell: Tell, plain: LayerKind | None) -> Compiled:
    tell(f"reading {path.name}")
    models = cache_folder() / "models"

    def saved(key: str) -> Model | None:
        """The cleaned model from its folder, if it is whole: reading it takes a hundredth of the time of cleaning."""
        return read_saved(path.stem, models / key) if fault_in(models / key) is None else None

    model = read_model(path, sizes, saved)
    layers = group_layers(model.graph, plain or "heavy")
    engine_folder = _engine_folder(model, f"plain-{plain}-{INDEX_VERSION}" if plain else engine_key())

    def optimise(model_folder: Path, target: Path) -> None:
        if plain:
            _write_plain_index(model, layers, target)
        else:
            tell(f"optimising {model.name} (once; kept for the next start)")
            _first_that_runs(model.name, model_folder, target)

    def save(model_folder: Path) -> None:
        """Save the cleaned model and compile it at once: if the engine runs it in no form, neither is kept."""
        whole = read_model(path, sizes) if model.is_saved else model  # the folder it was read from has been removed
        whole.save(model_folder)
        publish(engine_folder, partial(optimise, model_folder))

    model_folder = publish(models / model.key, save)
    publish(engine_folder, partial(optimise, model_folder))
    return Compiled(model, layers, index_file.read_index(engine_folder), model_folder, engine_folder)


def _write_plain_index(model: Model, layers: tuple[Layer, ...], target: Path) -> None:
    index = with_splits(plain_index(model.graph, layers), model.graph, layers)
    followed = follow_batch(model.graph, integers_of(model.proto.graph))
    index_file.write_index(with_batches(index, model.graph, followed), target)


def read_compiled(name: str, model_folder: Path, engine_folder: Path) -> Compiled:
    """A model compiled with heavy layers, read from the folders of `compile_model`; weights stay in their file."""
    model = read_saved(name, model_folder)
    return Compiled(model, group_layers(model.graph), index_file.read_index(engine_folder), model_folder, engine_folder)


def recompiled(name: str, model_folder: Path, *, like: str) -> Path:
    """The folder of a saved model as this host's engine optimises it for this kind of processor; compiled if need be.

    `like`: the digest of the index of the daemon's host, as stages from both hosts form one plan. Raises Failure if the
    index here differs.
    """
    folder = cache_folder() / "engines" / model_folder.name / engine_key()
    publish(folder, lambda target: _first_that_runs(name, model_folder, target))
    if hashlib.sha256((folder / index_file.FILE_NAME).read_bytes()).hexdigest() != like:
        form = index_file.read_index(folder).form
        raise Failure(
            f"{name}: on this processor the engine brings it into another form ({form}) than on the daemon's host: "
            "expected processors of one kind",
            Error.ENGINE_REFUSES,
        )
    return folder


def proto_of(compiled: Compiled) -> onnx.ModelProto:
    """The cleaned ONNX model; read from its folder, without large weights, if `compiled` does not hold it."""
    model = compiled.model
    return (model if isinstance(model, Model) else read_saved(model.name, compiled.model_folder)).proto


def compiled_form(model: ModelGraph) -> Form | None:
    """The form in which this host's engine runs the model; None if it has not been compiled yet."""
    folder = _engine_folder(model, engine_key())
    return index_file.read_index(folder).form if fault_in(folder) is None else None


def _engine_folder(model: ModelGraph, name: str) -> Path:
    return cache_folder() / "engines" / model.key / name


def _first_that_runs(name: str, model_folder: Path, target: Path) -> None:
    """Compile the model into `target`, in the first form that the engine runs."""
    forms: tuple[Form, ...] = get_args(Form)
    limit_s = _LIMIT_S + _LIMIT_S_PER_BYTE * _size_bytes(model_folder)
    tried = []
    for form in forms:
        failed = f"{name}: the engine could not bring it into the form {form!r}"
        try:
            run_job("stages.jobs.compile", str(model_folder), str(target), form, failed=failed, limit_s=limit_s)
        except JobFailed as error:
            if error.status in _ENDED_FROM_OUTSIDE:
                raise
            if error.errno == errno.ENOENT:  # somebody has emptied the cache: no fault of the form
                raise FileNotFoundError(error.errno, os.strerror(error.errno)) from None
            _check_room(model_folder, target)
            tried.append(f"{form} ({error.reason})")
            for file in target.iterdir():
                file.unlink()
        else:
            if tried:
                log.warning("%s: not %s; taken: %s (%s)", name, ", ".join(tried), form, FORM_EFFECT[form])
            return
    raise Failure(f"{name}: the engine runs it in no form: {', '.join(tried)}", Error.ENGINE_REFUSES)


def _check_room(model_folder: Path, target: Path) -> None:
    """Raises OSError if the disk is full: that is no fault of the form, and a worse form would be kept for good.

    The engine does not report why it could not write. So disk space for the model is reserved beside its output.
    """
    with (target / "room").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, _size_bytes(model_folder))


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def engine_key() -> str:
    """Name of the engine's version and this kind of processor: an optimised graph may not run on any other."""
    digest = hashlib.sha256(" ".join(sorted(instruction_sets())).encode()).hexdigest()[:12]
    version = importlib.metadata.version("onnxruntime")
    return f"onnxruntime-{version}-{platform.machine()}-{digest}-{INDEX_VERSION}"
