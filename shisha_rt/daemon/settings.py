"""What a daemon is started with: a daemon file, or a bare model and options."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from shisha_rt.checked import convert, shown
from shisha_rt.errors import BadInput
from shisha_rt.machine.machine import Machine
from shisha_rt.machine.precision import PERMITTED
from shisha_rt.model.input_sizes import LARGEST_SIZE
from shisha_rt.model.layer_kinds import LAYER_KINDS, LayerKind
from shisha_rt.placement.solver_names import STAGE_SOLVERS
from shisha_rt.plan.rate import ANY_OBJECTIVES, AnyObjective, as_any_objective
from shisha_rt.planner.scheme_names import SCHEMES
from shisha_rt.planner.strategies import LIVE
from shisha_rt.process.layout import OUTPUT_BYTES

ENDPOINT: Final = "tcp://127.0.0.1:5555"
METRICS: Final = "127.0.0.1:9464"
STRATEGIES: Final = (*LIVE, "seed", *SCHEMES)
"""`seed`: it is not tuned at all. Schemes schedule partitions."""

LEAST_OUTPUT_BYTES: Final = 1 << 10
MOST_OUTPUT_BYTES: Final = 1 << 30


_FILES: Final = ("plan", "calibration", "http_certificate", "http_key", "access", "secret_key", "leases")
"""Keys that are files, or folders."""

_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_SIZE)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`model` is a path or `zoo:NAME`, `machine` a path or a shipped name, `metrics` PORT or HOST:PORT.

    `objective`: what plans are chosen for; `replicate`: whether the daemon's own may have copies and teams; `layers`
    and `objective` are by default what the strategy goes by; `max_output_bytes`: the room of each output whose shape
    depends on the data; `plan`: a file with the first plan; `groups`: operators in a row that are measured as one, as
    "Conv+Relu"; `shape`: of several shapes that are served at once, the inputs of each; `calibration`: a file of frames
    that scales in int8 are found on (see `measure.scales`). `http`: addresses, each PORT, HOST:PORT or unix:PATH.
    An address that other hosts can reach, `metrics` too, takes `http_certificate` and `http_key` (PEM) and `access` (a
    file: who may come); `endpoint` takes `access` and `secret_key` (the daemon's own). `ray`: the cluster that has the
    machine's places on other hosts. `leases`: the folder in which daemons on one host lease cores. As a daemon file has
    them, key by key.
    """

    model: str
    machine: str = "this-machine"
    endpoint: str = ENDPOINT
    metrics: str = METRICS
    dims: dict[str, _Size] = {}
    shape: tuple[dict[str, tuple[_Size, ...]], ...] = ()
    strategy: str = "guided"
    precision: str = "exact"
    calibration: str | None = None
    solver: str = "exact"
    layers: str | None = None
    objective: str | None = None
    replicate: bool = True
    max_output_bytes: int = OUTPUT_BYTES
    plan: str | None = None
    groups: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    http_certificate: str | None = None
    http_key: str | None = None
    http_shared_memory: bool = False
    access: str | None = None
    secret_key: str | None = None
    ray: str | None = None
    leases: str | None = None


def read_settings(path: Path) -> Settings:
    """A daemon file. Relative paths in it start from its own folder."""
    try:
        raw = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{path}: {reason}; expected a daemon file in TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}; expected TOML") from None
    settings = convert(raw, Settings, str(path))
    model = settings.model if settings.model.startswith("zoo:") else str(path.parent / settings.model)
    files = {name: getattr(settings, name) for name in _FILES}
    return replace(
        settings,
        model=model,
        machine=_beside(path, settings.machine),
        **{name: str(path.parent / file) for name, file in files.items() if file is not None},
    )


def check_built(settings: Settings, source: str) -> None:
    """Raises BadInput for a value that a key cannot have, or that the design has and this version has not."""
    if settings.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise BadInput(f"{source}: strategy = {shown(settings.strategy)}: not built yet, expected one of {known}")
    if settings.precision not in PERMITTED:
        raise BadInput(f"{source}: precision = {shown(settings.precision)}: expected {' or '.join(PERMITTED)}")
    if settings.solver not in STAGE_SOLVERS:
        raise BadInput(f"{source}: solver = {shown(settings.solver)}: expected {' or '.join(STAGE_SOLVERS)}")
    if settings.layers is not None and settings.layers not in LAYER_KINDS:
        raise BadInput(f"{source}: layers = {shown(settings.layers)}: expected {' or '.join(LAYER_KINDS)}")
    if settings.objective is not None and settings.objective not in ANY_OBJECTIVES:
        raise BadInput(f"{source}: objective = {shown(settings.objective)}: expected {' or '.join(ANY_OBJECTIVES)}")
    if settings.strategy in SCHEMES:
        _check_scheme(settings, source)
    elif settings.groups:
        known = ", ".join(SCHEMES)
        raise BadInput(f"{source}: groups: not with strategy {settings.strategy}, expected one of {known}")
    if not LEAST_OUTPUT_BYTES <= settings.max_output_bytes <= MOST_OUTPUT_BYTES:
        expected = f"{LEAST_OUTPUT_BYTES} to {MOST_OUTPUT_BYTES}"
        raise BadInput(f"{source}: max_output_bytes = {shown(settings.max_output_bytes)}: expected {expected}")


def _check_scheme(settings: Settings, source: str) -> None:
    """Raises BadInput for what a scheme of partitions does not know."""
    if settings.objective not in (None, "latency"):
        raise BadInput(
            f"{source}: objective = {shown(settings.objective)}: strategy {settings.strategy} knows none but latency"
        )
    if settings.layers is not None:
        raise BadInput(
            f"{source}: layers = {shown(settings.layers)}: strategy {settings.strategy} takes the finest that the "
            "machine has, expected no such key"
        )


def check_cluster(address: str | None, machine: Machine) -> None:
    """Raises BadInput where a machine has places on other hosts and no cluster is said, or the other way round."""
    if machine.remote and address is None:
        raise BadInput(
            f'{machine.source}: place {machine.remote[0].name} has host = "ray": expected --ray ADDRESS, or --ray local'
        )
    if address is not None and not machine.remote:
        raise BadInput(f'--ray {address}: no place of {machine.source} has host = "ray", expected at least one')


def layer_kind(settings: Settings, machine: Machine) -> LayerKind:
    """Of settings that have been checked: a scheme parts whatever can be parted."""
    if settings.strategy in SCHEMES:
        return machine.finest_layers
    return cast(LayerKind, settings.layers or "heavy")


def objective_of(settings: Settings) -> AnyObjective:
    """Of settings that have been checked."""
    by_default = "latency" if settings.strategy in SCHEMES else "auto"
    return as_any_objective(settings.objective or by_default)


def _beside(path: Path, machine: str) -> str:
    """A shipped name stays a name; anything that looks like a file is one beside the daemon file."""
    return str(path.parent / machine) if machine.endswith(".toml") else machine
