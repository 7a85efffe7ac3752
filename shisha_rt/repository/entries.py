"""Which models a host process serves: files, folders of versions, and the `[[model]]` tables of a daemon file."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import asdict
from msgspec.structs import replace as with_settings_of

from shisha_rt.checked import Count, WholeNumber, Word, convert
from shisha_rt.core.dealer import Terms
from shisha_rt.daemon.settings import Settings, check_built, read_daemon_file, settings_in
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.machine import Machine

FIRST_VERSION: Final = "1"
OF_THE_HOST: Final = (
    *("machine", "endpoint", "metrics", "http", "grpc", "http_certificate", "http_key", "http_shared_memory"),
    *("access", "secret_key", "ray", "leases"),
)
"""Keys of the host process's own settings; all other keys are settings of each model's daemon."""
_TABLE: Final = "model"


class _Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of a `[[model]]` table that the host process reads; the rest are the daemon's settings."""

    version: Word = FIRST_VERSION
    share: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    least: WholeNumber = 0
    most: Count | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model to be served. `settings`: its daemon's. `folder`: has one folder for each version, named after it."""

    name: str
    version: str
    settings: Settings
    terms: Terms
    folder: Path | None = None

    def as_version(self, model: str, version: str) -> ModelEntry:
        """The same entry with a different model file and version."""
        return replace(self, version=version, settings=with_settings_of(self.settings, model=model))

    def in_folder(self, version: str | None = None) -> ModelEntry:
        """The entry with a version (by default the newest) in `folder`. Raises BadInput if there is none; OSError."""
        if self.folder is None:
            return self
        versions = _versions(self.folder)
        if not versions:
            raise BadInput(f"{self.folder}: no version in it; expected VERSION/model.onnx")
        files = dict(versions)
        if version is None:
            version = versions[-1][0]
        elif version not in files:
            raise BadInput(f"{self.folder}: no version {version!r} in it; expected one of {', '.join(files)}")
        return self.as_version(str(files[version]), version)


def names_several(sources: Sequence[str]) -> bool:
    """Whether `sources` need a host process: several of them, a folder, or a daemon file with `[[model]]` tables."""
    if len(sources) != 1:
        return True
    source = Path(sources[0])
    return source.is_dir() or (source.suffix == ".toml" and isinstance(read_daemon_file(source).get(_TABLE), list))


def entries_of(sources: Sequence[str], given: Mapping[str, Any]) -> tuple[Settings, list[ModelEntry]]:
    """The host process's settings, and the models. `given`: settings given as options. Raises BadInput."""
    for key in ("name", "version"):
        if key in given:
            raise BadInput(
                f"--{key}: not with several models; expected a {key} in each [[model]] table of a daemon file",
                Error.WRONG_OPTION,
            )
    host, entries = Settings(""), list[ModelEntry]()
    for source in sources:
        if source.endswith(".toml"):
            if len(sources) > 1:
                raise BadInput(f"{source}: a daemon file beside other models; expected it alone, with [[model]] tables")
            host, entries = _in_file(Path(source))
        elif Path(source).is_dir():
            entries += _in_folder(Path(source))
        else:
            entries.append(_entry(source, Settings("")))
    of_all = {key: value for key, value in _of_model(given).items() if key not in ("dims", "shape")}
    entries = [replace(entry, settings=with_settings_of(entry.settings, **of_all)) for entry in entries]
    entries = _sized(entries, given.get("dims", {}), given.get("shape", ()))
    for entry in entries:
        check_built(entry.settings, entry.name)
    host = with_settings_of(host, **{key: value for key, value in given.items() if key in OF_THE_HOST})
    if host.ray is not None:
        raise BadInput("--ray: not with several models; expected a daemon of its own for a model on other hosts")
    _check_names(entries)
    return host, entries


def _sized(
    entries: list[ModelEntry], dims: Mapping[str, int], shapes: Sequence[Mapping[str, tuple[int, ...]]]
) -> list[ModelEntry]:
    """Give each model the sizes of the inputs and dimensions that it has. Raises BadInput for one that none has."""
    if not dims and not shapes:
        return entries
    from shisha_rt.model.reader.onnx_reader import read_sized_names  # imports onnx
    from shisha_rt.model.zoo import resolve_model

    unused = {*(f"--dim {name}" for name in dims), *(f"--shape {name}" for shape in shapes for name in shape)}
    sized = []
    for entry in entries:
        inputs, open_dims = read_sized_names(resolve_model(entry.settings.model))
        unused -= {*(f"--dim {name}" for name in open_dims), *(f"--shape {name}" for name in inputs)}
        own_dims = {name: size for name, size in dims.items() if name in open_dims}
        own = [{name: sizes for name, sizes in shape.items() if name in inputs} for shape in shapes]
        own_shapes = tuple(shape for number, shape in enumerate(own) if shape and shape not in own[:number])
        settings = with_settings_of(
            entry.settings, dims={**entry.settings.dims, **own_dims}, shape=own_shapes or entry.settings.shape
        )
        sized.append(replace(entry, settings=settings))
    if unused:
        raise BadInput(
            f"{min(unused)}: no model has it; expected a name that one has. For sizes of one model alone: "
            "a daemon file, docs/several-models.md",
            Error.WRONG_SIZES,
        )
    return sized


def _of_model(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in OF_THE_HOST}


def _entry(model: str, settings: Settings) -> ModelEntry:
    """Raises BadInput if there is no such file."""
    if not (model.startswith("zoo:") or Path(model).is_file()):
        raise BadInput(
            f"{model}: there is no such file; expected an ONNX file, a folder of them, or zoo:NAME",
            Error.MODEL_UNREADABLE,
        )
    name = model.removeprefix("zoo:") if model.startswith("zoo:") else Path(model).stem
    return ModelEntry(name, FIRST_VERSION, with_settings_of(settings, model=model), Terms())


def _of_versions(folder: Path, settings: Settings, version: str | None = None) -> ModelEntry:
    """A version, by default the newest, of the model whose versions are in `folder`."""
    return ModelEntry(folder.name, "", settings, Terms(), folder).in_folder(version)


def _in_folder(folder: Path) -> list[ModelEntry]:
    """One entry for each `NAME.onnx`, and one for each `NAME/VERSION/FILE.onnx`, with its newest version."""
    entries = [_entry(str(path), Settings("")) for path in sorted(folder.glob("*.onnx"))]
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if _versions(inner):
            entries.append(_of_versions(inner, Settings("")))
    if not entries:
        raise BadInput(f"{folder}: no model in it; expected NAME.onnx, or NAME/VERSION/model.onnx")
    return entries


def _versions(folder: Path) -> list[tuple[str, Path]]:
    """The versions in a folder with their files, the newest (highest number, as in Triton) last."""
    versions = {inner.name: _onnx_files(inner) for inner in folder.iterdir() if inner.name.isdecimal()}
    return [(name, files[0]) for name, files in sorted(versions.items(), key=lambda item: int(item[0])) if files]


def _onnx_files(folder: Path) -> list[Path]:
    """The ONNX files in a folder; none if it was removed or renamed since it was seen."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(folder.glob("*.onnx"))
    return []


def _in_file(path: Path) -> tuple[Settings, list[ModelEntry]]:
    raw = read_daemon_file(path)
    tables = raw.pop(_TABLE)
    assert isinstance(tables, list)
    if not tables:
        raise BadInput(f"{path}: model = []: expected a [[model]] table for each model", Error.WRONG_VALUE)
    host, entries = settings_in({**raw, _TABLE: path.name}, path, str(path)), []  # it needs some model
    for index, table in enumerate(tables):
        where = f"{path}: model[{index}]"
        if not isinstance(table, dict):
            raise BadInput(f"{where}: expected a table")
        misplaced = [key for key in table if key in OF_THE_HOST]
        if misplaced:
            raise BadInput(f"{where}.{misplaced[0]}: is the host's; expected it above all [[model]] tables")
        of_host = {"version": raw["version"]} if "version" in raw else {}
        own = {key: table.pop(key) for key in _Terms.__struct_fields__ if key in table}
        terms = convert(of_host | own, _Terms, where)
        if terms.most is not None and terms.most < terms.least:
            raise BadInput(f"{where}.most: {terms.most}; expected no less than {terms.least} (least)")
        settings = settings_in({**_of_model(raw), **table}, path, where)
        if Path(settings.model).is_dir():
            entry = _of_versions(Path(settings.model), settings, terms.version if "version" in own else None)
        else:
            entry = _entry(settings.model, settings).as_version(settings.model, terms.version)
        own_terms = Terms(terms.share, terms.least, terms.most)
        entries.append(replace(entry, name=settings.name or entry.name, terms=own_terms))
    return host, entries


def _check_names(entries: Iterable[ModelEntry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise BadInput(f"model {entry.name!r}: is there twice; expected a name of its own for each (name = ...)")
        seen.add(entry.name)


def check_least(entries: Sequence[ModelEntry], machine: Machine) -> None:
    """Raises BadInput if models are to have more places to themselves than the machine has."""
    least = {entry.name: entry.terms.least for entry in entries if entry.terms.least}
    if sum(least.values()) > len(machine.places):
        of_each = ", ".join(f"{count} for {name}" for name, count in least.items())
        raise BadInput(
            f"least: {of_each}; expected at most {len(machine.places)} in all, the places of {machine.source}",
            Error.WRONG_VALUE,
        )


def identity_of(entry: ModelEntry) -> dict[str, Any]:
    """Name, version, settings and time of its file, as JSON values: equal ones of a running daemon fit the entry."""
    written = _written_ns(Path(entry.settings.model))
    fields = {"name": entry.name, "version": entry.version, "settings": asdict(entry.settings), "written": written}
    return msgspec.json.decode(msgspec.json.encode(fields), type=dict[str, Any])


def _written_ns(path: Path) -> int | None:
    """Modification time of a file; None if there is none, as for a network of the zoo."""
    with contextlib.suppress(OSError, ValueError):  # one look: it may be removed at any time
        status = path.stat()
        return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else None
    return None
