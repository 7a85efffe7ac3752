"""`shisha-rt serve`: start the daemon and serve until it is told to stop."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shisha_rt.cli.completion import offer, offer_machines, offer_models
from shisha_rt.cli.options import Dims, Groups, ManyShapes, parse_dims, parse_shapes, progress
from shisha_rt.machine.precision import PERMITTED
from shisha_rt.model.layer_kinds import LAYER_KINDS
from shisha_rt.placement.solver_names import STAGE_SOLVERS
from shisha_rt.plan.rate import ANY_OBJECTIVES
from shisha_rt.planner.scheme_names import SCHEMES
from shisha_rt.planner.strategies import LIVE

if TYPE_CHECKING:
    from shisha_rt.daemon.settings import Settings


def serve(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|MODEL",
            help="A daemon file (.toml), an ONNX file, or zoo:NAME.",
            autocompletion=offer_models,
        ),
    ],
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A machine file or a shipped name. Default: this-machine.",
            autocompletion=offer_machines,
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="tcp://127.0.0.1:PORT (0: any free one) or ipc://PATH. Default: tcp://127.0.0.1:5555.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Where Prometheus scrapes; port 0: any free one. Default: 127.0.0.1:9464."
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How the live pipeline is tuned: guided (default), shisha, or seed: not at all; or a schedule of "
            f"partitions for the least latency: {', '.join(SCHEMES)}.",
            autocompletion=offer(*LIVE, "seed", *SCHEMES),
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="exact (default): no device that changes results; any: those too.", autocompletion=offer(*PERMITTED)
        ),
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FRAMES.npz", help="Frames on which scales in int8 are found; noise if not.")
    ] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            help="How operators are placed on a place's devices: exact (default), or als.",
            autocompletion=offer(*STAGE_SOLVERS),
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="heavy (default): one for each heavy operator; operators: each, on devices.",
            autocompletion=offer(*LAYER_KINDS),
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="throughput: the most frames a second; latency: the least time of one by itself; auto (default): what "
            "the load asks for.",
            autocompletion=offer(*ANY_OBJECTIVES),
        ),
    ] = None,
    replicate: Annotated[
        bool | None,
        typer.Option(help="Whether plans may have copies and teams (default), or each place a stage of its own."),
    ] = None,
    max_output_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Room for an output whose shape depends on the data: 1 MiB.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="PLAN.json", help="Begin with this plan, as plan --json prints it, and leave it live."),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Speak HTTP there, too: the Open Inference Protocol, and a page to watch; or unix:PATH.",
        ),
    ] = None,
    http_certificate: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="For HTTP and metrics that other hosts can reach, with --http-key."),
    ] = None,
    http_key: Annotated[Path | None, typer.Option(metavar="PEM", help="The key of that certificate.")] = None,
    http_shared_memory: Annotated[
        bool | None,
        typer.Option("--http-shared-memory", help="Known callers of HTTP may name their files in /dev/shm."),
    ] = None,
    access: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who may come, by keys and tokens; read again on SIGHUP.")
    ] = None,
    secret_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The daemon's own key, made by: shisha-rt keys new.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help='The Ray cluster for places with host = "ray": HOST:PORT, auto, or local: one on this host, to try.',
        ),
    ] = None,
    leases: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where daemons on this host lease cores, in containers too if they share it. Default: the user's.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; leave the best plan of earlier runs as it is.")
    ] = False,
    group: Groups = None,
    dim: Dims = None,
    shape: ManyShapes = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every event to standard error.")] = False,
) -> None:
    """Serve a model: cut it into a pipeline over the machine's places and answer frames.

    Prints one JSON line, with the endpoint and the metrics page, once frames can be sent. SIGTERM or Ctrl-C: admits
    nothing more, answers what is in flight, ends.

    \b
    Examples:
      shisha-rt serve zoo:squeezenet
      shisha-rt serve zoo:resnet50 --objective latency
      shisha-rt serve model.onnx --machine shared-2 --endpoint tcp://127.0.0.1:0
      shisha-rt serve zoo:squeezenet --http 127.0.0.1:8000
      shisha-rt serve lines.onnx --shape x=1x3x48x160 --shape x=1x3x48x640
      shisha-rt serve zoo:squeezenet --machine npu-board --precision any --strategy partitiontuner
      shisha-rt serve zoo:resnet50 --machine hosts.toml --ray 10.0.0.1:6379
      shisha-rt serve daemon.toml
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.daemon.children.preparer_link import PreparerLink
    from shisha_rt.daemon.service_manager import ServiceManager

    log_level, log_format = logging.INFO if verbose else logging.WARNING, "%(asctime)s %(message)s"
    logging.basicConfig(level=log_level, format=log_format)
    manager = ServiceManager(os.environ)  # before any other process is started

    def tell(message: str) -> None:
        progress(message)
        manager.tell(message)

    with _sigterm_ends_a_start(), contextlib.closing(manager), contextlib.ExitStack() as leaving:
        preparer = PreparerLink()  # first: it loads what it needs while this process does
        leaving.callback(preparer.close)
        settings = settings_of(context.params)  # all that a daemon file may say, too
        from shisha_rt.daemon.front.addresses import addresses_of
        from shisha_rt.daemon.host_share import share_of
        from shisha_rt.daemon.prepared import Preparation
        from shisha_rt.daemon.settings import check_cluster

        addresses = addresses_of(settings)
        share = share_of(settings)
        leaving.callback(share.close)
        check_cluster(settings.ray, share.machine)
        share.say()
        asked = Preparation(settings, share.machine, fresh)
        joined = None
        if settings.ray is None:
            preparer.ask(asked, (log_level, log_format))
            from shisha_rt.daemon.server import Daemon

            prepared = preparer.wait(tell)
        else:  # the line to the cluster stays with this process
            from shisha_rt.daemon.prepare import prepare
            from shisha_rt.daemon.server import Daemon
            from shisha_rt.hosts.joined import Joined

            preparer.close()
            joined = Joined(settings.ray, share.machine, tell)
            leaving.callback(joined.close)
            prepared = prepare(asked, tell, joined)
        daemon = Daemon(prepared, addresses, settings.max_output_bytes, manager, joined, share, preparer)
        leaving.pop_all()  # it is the daemon's now

        def announce() -> None:
            line = {"ready": True, "endpoint": daemon.gateway.endpoint, "metrics": daemon.metrics_page}
            print(json.dumps(line | ({"http": daemon.web.urls} if daemon.web.urls else {})), flush=True)

        tell(f"starting {len(share.machine.usual)} workers")
        daemon.run(announce)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """What `serve` is started with: the daemon file's keys, and over them the options. Raises BadInput."""
    from msgspec.structs import replace

    from shisha_rt.daemon.settings import Settings, check_built, read_settings

    source: str = options["source"]
    settings = read_settings(Path(source)) if source.endswith(".toml") else Settings(source)
    given = {"groups" if name == "group" else name: _plain(value) for name, value in options.items()}
    given["dims"] = {**settings.dims, **parse_dims(options["dim"])}
    given["shape"] = tuple(parse_shapes(options["shape"])) if options["shape"] else settings.shape
    keys = Settings.__struct_fields__
    settings = replace(settings, **{name: value for name, value in given.items() if name in keys and value is not None})
    check_built(settings, source)
    return settings


def _plain(value: object) -> object:
    """As a daemon file would have it; None where an option was not given."""
    if isinstance(value, list | tuple):
        return tuple(value) or None
    return str(value) if isinstance(value, Path) else value


@contextlib.contextmanager
def _sigterm_ends_a_start() -> Iterator[None]:
    """Before the daemon's loop takes signals there is nothing to answer yet, and whatever was begun is put away."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
