"""The settings of a daemon, each defined once for daemon files and for the options of `serve`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeAlias, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from shisha_rt.checked import convert, one_of, shown
from shisha_rt.daemon.fleet.watch import DEFAULT_LIMITS
from shisha_rt.endpoint import default_endpoint
from shisha_rt.errors import BadInput, Error
from shisha_rt.extras import pip_install
from shisha_rt.machine.config.toml_file import read_text, toml_table
from shisha_rt.machine.precision import PERMITTED
from shisha_rt.measure.installed import installed_engines
from shisha_rt.model.input_sizes import LARGEST_SIZE
from shisha_rt.model.layer_kinds import LAYER_KINDS, LayerKind
from shisha_rt.placement.solver_names import STAGE_SOLVERS
from shisha_rt.plan.engine import ANY_ENGINES, DEFAULT_ENGINE, AnyEngine
from shisha_rt.plan.plan import MOST_BATCH
from shisha_rt.plan.rate import ANY_OBJECTIVES, AnyObjective
from shisha_rt.planner.seed import ASSIGNS
from shisha_rt.planner.strategies import BALANCES, DEFAULT_BALANCE, LIVE, SCHEMES
from shisha_rt.process.output_room import LEAST_OUTPUT_BYTES, MOST_OUTPUT_BYTES, OUTPUT_BYTES
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_NAME_LENGTH
from shisha_rt.protocol.operations import PathName

if TYPE_CHECKING:
    from shisha_rt.machine.machine import Machine

ONLY_VERSION: Final = "1"
METRICS: Final = "127.0.0.1:9464"
TRACE_RATIO: Final = 0.01
STRATEGIES: Final = (*LIVE, "seed", *SCHEMES)
"""`seed`: the plan is not tuned at all. Schemes schedule partitions."""

_WHAT: Final = "daemon file"
_Text: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\0]*\Z")]
_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_SIZE)]


class SettingKey(NamedTuple):
    """A key of a daemon file that is an option, with its help text: with one value or `several`.

    `kind`: a value's type, except for files. `choices`: the words, and `bounds`: the numbers that it may have. `group`:
    its group in `--help`; None: it is common. `file`: the value is a path. `flag`: the option has no `--no-` form.
    """

    text: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None
    group: str | None = None
    file: bool = False
    flag: bool = False
    name: str = ""
    kind: type = str
    several: bool = False


_common: Final = SettingKey
_network: Final = partial(SettingKey, group="Network and access")
_planning: Final = partial(SettingKey, group="Planning")
_host: Final = partial(SettingKey, group="Host")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each key of a daemon file, its default, and the help text of the option of the same name: all defined only here.

    `model` is a path or `zoo:NAME`. By default `objective` and `layers` depend on the strategy, and `engine` is the
    machine file's. An address that other hosts can reach, of `metrics` too, requires `http_certificate`, `http_key` and
    `access`; for `endpoint`, it requires `access` and `secret_key`.
    """

    model: str
    machine: Annotated[str, _common("A file or a shipped name. Default: this-machine.", "FILE")] = "this-machine"
    endpoint: Annotated[
        str,
        _common(
            "tcp://127.0.0.1:PORT (0: any free one) or ipc://PATH. Default: $SHISHA_ENDPOINT, or tcp://127.0.0.1:5555.",
            "URL",
        ),
    ] = msgspec.field(default_factory=default_endpoint)
    metrics: Annotated[
        str, _network("Where Prometheus scrapes; port 0: any free one. Default: 127.0.0.1:9464.", "[HOST:]PORT")
    ] = METRICS
    dims: dict[str, _Size] = {}
    shape: tuple[dict[str, tuple[_Size, ...]], ...] = ()
    strategy: Annotated[
        str,
        _planning(
            "How the live pipeline is tuned: guided (default), shisha, or seed: not at all; or a schedule of "
            f"partitions for the least latency: {', '.join(SCHEMES)}.",
            choices=STRATEGIES,
        ),
    ] = "guided"
    assign: Annotated[
        str,
        _planning(
            "Who gets which stage of Shisha's seed: the fastest place the heaviest (weight, default), the slowest the "
            "most layers (layers), or random.",
            choices=ASSIGNS,
        ),
    ] = "weight"
    balance: Annotated[
        str,
        _planning(
            "Who takes a layer in Shisha's walk: the least loaded fast place (nlfep, default), or the nearest (nfep).",
            choices=BALANCES,
        ),
    ] = DEFAULT_BALANCE
    engine: Annotated[
        str | None,
        _common(
            "What computes whole stages: auto (default): whichever is fastest here, as measured; or onnxruntime or "
            "openvino alone.",
            choices=ANY_ENGINES,
        ),
    ] = None
    precision: Annotated[
        str,
        _planning(
            "exact (default): no engine or device that changes results; any: those too, as OpenVINO in bfloat16.",
            choices=PERMITTED,
        ),
    ] = "exact"
    calibration: Annotated[
        str | None, _planning("Frames on which scales in int8 are found; noise if not.", "FRAMES.npz", file=True)
    ] = None
    solver: Annotated[
        str, _planning("How operators are placed on a place's devices: exact (default), or als.", choices=STAGE_SOLVERS)
    ] = "exact"
    layers: Annotated[
        str | None,
        _planning("heavy (default): one for each heavy operator; operators: each, on devices.", choices=LAYER_KINDS),
    ] = None
    objective: Annotated[
        str | None,
        _common(
            "throughput: the most frames a second; latency: the least time of one by itself; energy: the fewest "
            "joules; auto (default): what the load asks for.",
            choices=ANY_OBJECTIVES,
        ),
    ] = None
    replicate: Annotated[
        bool, _planning("Whether plans may have copies, teams and shards (default), or each place a stage of its own.")
    ] = True
    batch: Annotated[
        int | None,
        _planning(
            "The most frames that share one run of a stage, where its layers allow it: 1 to 64. Default: as many as "
            "are measured to pay.",
            "N",
            bounds=(1, MOST_BATCH),
        ),
    ] = None
    batch_delay_us: Annotated[
        int,
        _planning(
            "How long an idle stage waits for more frames to share a run; 0 (default): while more are likely soon.",
            "N",
            bounds=(0, 1_000_000),
        ),
    ] = 0
    target_ms: Annotated[
        float | None,
        _common("Answer most frames within this time; refuse at once what would take longer. Default: none.", "MS"),
    ] = None
    max_output_bytes: Annotated[
        int,
        _host(
            "Room for an output whose shape depends on the data: 1 MiB.",
            "N",
            bounds=(LEAST_OUTPUT_BYTES, MOST_OUTPUT_BYTES),
        ),
    ] = OUTPUT_BYTES
    max_worker_bytes: Annotated[
        int | None,
        _host(
            "What frames may make a worker take beyond its stages: half of the host's memory.",
            "N",
            bounds=(1 << 20, 1 << 50),
        ),
    ] = None
    hang_s: Annotated[
        float,
        _host("A frame that runs for so long, and 20 times as long as usual, hangs: 5.", "S", bounds=(0.1, 86400)),
    ] = DEFAULT_LIMITS.frame_s
    plan: Annotated[
        str | None,
        _planning("Begin with this plan, as plan --json prints it, and leave it live.", "PLAN.json", file=True),
    ] = None
    groups: tuple[str, ...] = ()
    http: Annotated[
        tuple[str, ...],
        _common(
            "Speak HTTP there, too: the Open Inference Protocol, and a page to watch; or unix:PATH.", "[HOST:]PORT"
        ),
    ] = ()
    grpc: Annotated[
        tuple[str, ...], _common("Speak gRPC there: the Open Inference Protocol. Takes the extra grpc.", "[HOST:]PORT")
    ] = ()
    http_certificate: Annotated[
        str | None, _network("For HTTP, gRPC, metrics that other hosts can reach, with --http-key.", "PEM", file=True)
    ] = None
    http_key: Annotated[str | None, _network("The key of that certificate.", "PEM", file=True)] = None
    http_shared_memory: Annotated[
        bool, _network("Known callers of HTTP and gRPC may name their files in /dev/shm.", None, flag=True)
    ] = False
    otlp: Annotated[
        str | None, _network("Send traces of frames there, by OTLP over HTTP. Takes the extra otel.", "URL")
    ] = None
    trace_ratio: Annotated[
        float,
        _network("Part of the frames that are looked at closely, and traced: 0.01 (default).", "R", bounds=(0, 1)),
    ] = TRACE_RATIO
    access: Annotated[
        str | None, _network("Who may come, by keys and tokens; read again on SIGHUP.", "FILE", file=True)
    ] = None
    secret_key: Annotated[
        str | None, _network("The daemon's own key, made by: shisha-rt keys new.", "FILE", file=True)
    ] = None
    ray: Annotated[
        str | None,
        _host(
            'The Ray cluster for places with host = "ray": HOST:PORT, auto, or local: one on this host, to try.',
            "ADDRESS",
        ),
    ] = None
    leases: Annotated[
        str | None,
        _host(
            "Where daemons on this host lease cores, in containers too if they share it. Default: the user's.",
            "DIR",
            file=True,
        ),
    ] = None
    name: Annotated[str | None, _common("The name in requests. Default: the file's stem.", "NAME")] = None
    version: Annotated[str, _common("The model's version, as answers have it. Default: 1.", "VERSION")] = ONLY_VERSION


def setting_keys() -> Iterator[SettingKey]:
    """Yield the keys in the order of `serve --help`.

    `model`, and the keys that have another form on the command line (`dims`, `shape`, `groups`), are left out.
    """
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        for key in getattr(hint, "__metadata__", ()):
            inner = next(part for part in (*get_args(hint.__origin__), hint.__origin__) if isinstance(part, type))
            yield key._replace(name=name, kind=inner, several=get_origin(hint.__origin__) is tuple)


def read_daemon_file(path: Path) -> dict[str, object]:
    """Read a daemon file, unchecked. Raises BadInput if it is not TOML."""
    return toml_table(read_text(path, _WHAT), str(path), _WHAT)


def read_settings(path: Path) -> Settings:
    return settings_in(read_daemon_file(path), path, str(path))


def settings_in(raw: object, path: Path, source: str) -> Settings:
    """Settings of a daemon file; relative paths start from its folder. `source`: the file, as messages name it."""
    settings = convert(raw, Settings, source)
    model = settings.model if settings.model.startswith("zoo:") else str(path.parent / settings.model)
    files = {key.name: getattr(settings, key.name) for key in setting_keys() if key.file}
    for name, file in {"model": settings.model, **files, "machine": settings.machine}.items():
        if file == "":  # it would be the folder of the daemon file
            raise BadInput(f'{source}: {name} = "": expected a path', Error.WRONG_VALUE)
    return replace(
        settings,
        model=model,
        machine=_beside(path, settings.machine),
        **{name: str(path.parent / file) for name, file in files.items() if file is not None},
    )


def check_built(settings: Settings, source: str) -> None:
    """Raises BadInput for a value that a key cannot have."""
    for key in setting_keys():
        value = getattr(settings, key.name)
        expected = ""
        if key.choices and value is not None and value not in key.choices:
            expected = " or ".join(key.choices)
        if key.bounds is not None and value is not None and not key.bounds[0] <= value <= key.bounds[1]:
            expected = f"{key.bounds[0]} to {key.bounds[1]}"
        if key.name == "target_ms" and value is not None and not 0 < value <= MAX_DEADLINE_MS:
            expected = f"above 0 and at most {MAX_DEADLINE_MS:g}"
        if key.name in ("name", "version") and value == "":
            expected = "one character at least"
        if expected:
            raise BadInput(f"{source}: {key.name} = {shown(value)}: expected {expected}", Error.WRONG_VALUE)
    name = settings.name or Path(settings.model).stem
    texts = [("name", name, PathName), ("version", settings.version, PathName), ("model", settings.model, _Text)]
    for key in setting_keys():
        value = getattr(settings, key.name)
        texts += [(key.name, text, _Text) for text in (value if key.several else [value]) if isinstance(text, str)]
    for of, text, kind in texts:
        try:  # as requests, answers and the daemon's children have it
            msgspec.json.decode(msgspec.json.encode(text), type=kind)
        except (msgspec.ValidationError, UnicodeEncodeError):
            in_paths = f" of at most {MAX_NAME_LENGTH} characters, without control or slash"
            expected = f"UTF-8 text{in_paths if kind is PathName else ' without NUL'}"
            raise BadInput(f"{source}: {of} = {shown(text)}: expected {expected}", Error.WRONG_VALUE) from None
    if settings.strategy in SCHEMES:
        _check_scheme(settings, source)
    elif settings.groups:
        known = ", ".join(SCHEMES)
        raise BadInput(
            f"{source}: groups: not with strategy {settings.strategy}, expected one of {known}", Error.OPTIONS_CLASH
        )


def _check_scheme(settings: Settings, source: str) -> None:
    """Raises BadInput for settings that a scheme of partitions does not support."""
    if settings.objective not in (None, "latency"):
        raise BadInput(
            f"{source}: objective = {shown(settings.objective)}: strategy {settings.strategy} knows none but latency",
            Error.OPTIONS_CLASH,
        )
    if settings.layers is not None:
        raise BadInput(
            f"{source}: layers = {shown(settings.layers)}: strategy {settings.strategy} takes the finest that the "
            "machine has, expected no such key",
            Error.OPTIONS_CLASH,
        )


def check_machine(settings: Settings, machine: Machine) -> None:
    """Raises BadInput for checked settings that the machine cannot serve by, whatever the model is."""
    _check_cluster(settings.ray, machine)
    _check_energy(settings, machine)
    engine_of(settings, machine)


def _check_cluster(address: str | None, machine: Machine) -> None:
    """Raises BadInput if a machine has places on other hosts and no cluster is given, or the other way round."""
    if machine.remote and address is None:
        source, name = machine.source, machine.remote[0].name
        message = f'{source}: place {name} has host = "ray": expected --ray ADDRESS, or --ray local'
        raise BadInput(message, Error.CLUSTER_MISSING)
    if address is not None and not machine.remote:
        raise BadInput(
            f'--ray {address}: no place of {machine.source} has host = "ray", expected at least one',
            Error.CLUSTER_MISSING,
        )


def _check_energy(settings: Settings, machine: Machine) -> None:
    """Raises BadInput if the objective is energy, and energy is not known or the strategy cannot plan for it."""
    if settings.objective != "energy":
        return
    if settings.strategy != "guided":
        raise BadInput(
            f'objective = "energy": not with strategy {settings.strategy}, expected guided', Error.OPTIONS_CLASH
        )
    if why := machine.why_no_energy:
        raise BadInput(f'{machine.source}: {why}, for objective = "energy"', Error.MACHINE_UNFIT)


def layer_kind(settings: Settings, machine: Machine) -> LayerKind:
    """Kind of layers for checked settings; schemes of partitions use the finest that the machine has."""
    if settings.strategy in SCHEMES:
        return machine.finest_layers
    return cast(LayerKind, settings.layers or "heavy")


def engine_of(settings: Settings, machine: Machine) -> AnyEngine:
    """Engine that may compute stages, for checked settings; the default one if places are not plain cores of this host.

    Raises BadInput if another engine is asked for that is not installed, or cannot be used on such places.
    """
    asked = cast(AnyEngine, settings.engine or machine.engine or "auto")
    own = why_usual_engine(machine)
    if asked in ("auto", DEFAULT_ENGINE):
        return cast(AnyEngine, DEFAULT_ENGINE) if own else asked
    if own:
        raise BadInput(f"engine = {shown(asked)}: {machine.source}: {own}; expected auto or {DEFAULT_ENGINE}")
    if asked not in installed_engines():
        message = f"engine = {shown(asked)}: it is missing, expected the extra {asked!r}: {pip_install(asked)}"
        raise BadInput(message, Error.EXTRA_MISSING)
    return asked


def why_usual_engine(machine: Machine) -> str:
    """Why only the default engine can serve on this machine; empty if others can."""
    if any(place.devices for place in machine.places):
        return "its places have devices, each of which names its engine"
    if machine.remote:
        return f"place {machine.remote[0].name} is on another host"
    if machine.emulated:
        return f"its places are emulated, and paced by what {DEFAULT_ENGINE} takes"
    return ""


def objective_of(settings: Settings) -> AnyObjective:
    by_default = "latency" if settings.strategy in SCHEMES else "auto"
    return one_of("objective", settings.objective or by_default, ANY_OBJECTIVES)


def _beside(path: Path, machine: str) -> str:
    """Resolve a machine file relative to the daemon file; the name of a shipped machine stays as it is."""
    return str(path.parent / machine) if machine.endswith(".toml") else machine
