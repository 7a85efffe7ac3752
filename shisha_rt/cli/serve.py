"""`shisha-rt serve`: start the daemon and serve until it is told to stop."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shisha_rt.cli.completion import offer, offer_machines, offer_models
from shisha_rt.cli.options import Dims, Groups, ManyShapes, keyword, parse_dims, parse_shapes
from shisha_rt.cli.progress import tell_terminal
from shisha_rt.daemon.loop.log_lines import log_lines, write_line
from shisha_rt.daemon.settings import (
    Settings,
    check_built,
    check_machine,
    read_settings,
    setting_keys,
)
from shisha_rt.endpoint import submit_command

if TYPE_CHECKING:
    from shisha_rt.daemon.front.web import Web
    from shisha_rt.daemon.server import Daemon
    from shisha_rt.daemon.service_manager import ServiceManager


def _options() -> Iterator[inspect.Parameter]:
    """The options of `serve`, one for each key of a daemon file (see `Settings`); None where not given."""
    for key in setting_keys():
        names = [f"--{key.name.replace('_', '-')}"] if key.flag else []
        option = typer.Option(
            *names,
            metavar=key.metavar,
            help=key.text,
            autocompletion=_OFFERED.get(key.name, offer(*key.choices)),
            rich_help_panel=key.group,
        )
        kind: Any = Path if key.file else key.kind
        yield keyword(key.name, Annotated[(list[kind] if key.several else kind) | None, option])
    yield keyword("group", Groups)
    yield keyword("dim", Dims)
    yield keyword("shape", ManyShapes)


_DESCRIPTORS: Final = 65_536  # as `LimitNOFILE` of the unit that `service` prints
_SAY_EVERY_S: Final = 10.0
_OFFERED: Final = {"machine": offer_machines}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all these options in its signature; it reads them from its context."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    first = [parameter for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    last = [parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
    # typer reads parameters by `inspect`, which uses this attribute
    command.__signature__ = inspect.Signature([*first, *_options(), *last])  # type: ignore[attr-defined]
    return command


@with_settings
def serve(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG|MODEL...",
            help="A daemon file (.toml), ONNX files or zoo:NAME, or a folder of ONNX files.",
            autocompletion=offer_models,
        ),
    ],
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; leave the best plan of earlier runs as it is.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every event to standard error.")] = False,
    **_: object,
) -> None:
    """Serve a model, and tune how cores share it while it serves.

    Prints one JSON line, with the endpoint and the metrics page, once frames can be sent. SIGTERM or Ctrl-C: admits
    nothing more, answers what is in flight, ends.

    \b
    Examples:
      shisha-rt serve zoo:squeezenet
      shisha-rt serve zoo:resnet50 --objective latency
      shisha-rt serve model.onnx --machine board.toml --http 127.0.0.1:8000
      shisha-rt serve lines.onnx --shape x=1x3x48x160 --shape x=1x3x48x640
      shisha-rt serve daemon.toml
      shisha-rt serve detector.onnx recogniser.onnx
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.daemon.service_manager import ServiceManager
    from shisha_rt.repository.entries import names_several

    log = logging.INFO if verbose else logging.WARNING, "%(asctime)s %(message)s"
    log_lines(*log)
    _allow_more_descriptors()
    manager = ServiceManager(os.environ)  # before any other process is started
    run = _serve_several if names_several(source) else _serve_one
    with contextlib.closing(manager):
        run(context.params, manager, log)


def _allow_more_descriptors() -> None:
    """Raise the soft limit towards the hard one: shells often have 1024, which 250 clients may take.

    ZeroMQ's thread spins while a connection waits for a descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS if hard < 0 else min(hard, _DESCRIPTORS), hard))


def _serve_one(options: Mapping[str, Any], manager: ServiceManager, log: tuple[int, str]) -> None:
    daemon = _daemon(options, manager, log)

    def announce() -> None:
        line = {"ready": True, "endpoint": daemon.gateway.endpoint, "metrics": daemon.web.metrics_page}
        write_line(sys.stdout, json.dumps(line | _told_of(daemon.web)))
        tell_terminal(_what_next(daemon.gateway.endpoint, daemon.web.urls))

    daemon.run(announce)


def _told_of(web: Web) -> dict[str, list[str]]:
    """Addresses of HTTP and gRPC, for the JSON line that is printed when the daemon is ready."""
    return {name: at for name, at in (("http", web.urls), ("grpc", web.grpc)) if at}


def _what_next(endpoint: str, urls: Sequence[str], model: str | None = None) -> str:
    """Text for a user at a terminal: what can be done with a daemon that is ready. `model`: one of several."""
    page = ", ".join(f"{url}/" for url in urls) or "none; --http 8000 has one at http://127.0.0.1:8000/"
    return f"ready\n  page  {page}\n  send  {submit_command(endpoint, model)}\n  stop  Ctrl-C"


class _StartProgress:
    """Reports progress of a start: at once to a terminal and to the service manager, else every ten seconds."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        self._started_s = self._said_s = time.monotonic()

    def say(self, message: str) -> None:
        tell_terminal(message)
        self._manager.tell(message)
        now_s = time.monotonic()
        if not sys.stderr.isatty() and now_s >= self._said_s + _SAY_EVERY_S:
            self._said_s = now_s
            write_line(sys.stderr, f"starting for {now_s - self._started_s:.0f} s: {message}")


def _daemon(options: Mapping[str, Any], manager: ServiceManager, log: tuple[int, str]) -> Daemon:
    """Start the daemon that the options describe; if that fails nothing is left behind. `log`: level and format."""
    from shisha_rt.daemon.start import expect_daemon, start_daemon

    expect_daemon()
    tell = _StartProgress(manager).say
    with contextlib.ExitStack() as leaving:
        settings = settings_of(options)
        from shisha_rt.daemon.host_share import share_of
        from shisha_rt.daemon.prepared import Preparation

        share = share_of(settings)
        leaving.callback(share.close)
        check_machine(settings, share.machine)
        preparation = Preparation(settings, share.machine, options["fresh"], log)
        daemon = start_daemon(preparation, share, manager, tell)
        leaving.pop_all()  # the daemon owns the share now
    share.say()  # not before, as a model that is not served has one line, which says why
    tell(f"starting {len(share.machine.usual)} workers")
    return daemon


def _serve_several(options: Mapping[str, Any], manager: ServiceManager, log: tuple[int, str]) -> None:
    """Serve several models until told to stop: each by a daemon of its own, all at one address."""
    from shisha_rt.daemon.start import expect_daemon

    expect_daemon("shisha_rt.repository.hosted", "shisha_rt.daemon.server")
    from shisha_rt.daemon.host_share import share_of
    from shisha_rt.repository.entries import check_least, entries_of
    from shisha_rt.repository.host import ModelHost
    from shisha_rt.repository.hosted import StartOptions

    settings, entries = entries_of(options["source"], keys_given(options))
    share = share_of(settings)
    check_least(entries, share.machine)
    for entry in entries:
        check_machine(entry.settings, share.machine)
    host = ModelHost(settings, entries, share, StartOptions(log, options["fresh"]), manager)

    def announce() -> None:
        line = {"ready": True, "endpoint": host.front.endpoint, "metrics": host.web.metrics_page}
        write_line(sys.stdout, json.dumps(line | _told_of(host.web) | {"models": [*host.fleet.models]}))
        tell_terminal(_what_next(host.front.endpoint, host.web.urls, next(iter(host.fleet.models))))

    host.run(announce, _StartProgress(manager).say)


def settings_of(options: Mapping[str, Any]) -> Settings:
    """The settings of `serve`: keys of the daemon file, overridden by options. Raises BadInput."""
    from msgspec.structs import replace

    (source,) = options["source"]
    settings = read_settings(Path(source)) if source.endswith(".toml") else Settings(source)
    given = keys_given(options)
    settings = replace(settings, **given | {"dims": {**settings.dims, **given.get("dims", {})}})
    check_built(settings, source)
    return settings


def keys_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a daemon file that options have set."""
    given = {"groups" if name == "group" else name: _plain(value) for name, value in options.items()}
    given["dims"] = parse_dims(options["dim"]) or None
    given["shape"] = tuple(parse_shapes(options["shape"])) if options["shape"] else None
    return {name: value for name, value in given.items() if name in Settings.__struct_fields__ and value is not None}


def _plain(value: object) -> object:
    """Value of an option as a daemon file would have it; None if the option was not given."""
    if isinstance(value, list | tuple):
        return tuple(value) or None
    return str(value) if isinstance(value, Path) else value
