"""`shisha-rt service`: a systemd unit that starts `serve` with the arguments given here."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shisha_rt.cli.completion import offer_models
from shisha_rt.cli.serve import keys_given, serve, settings_of
from shisha_rt.daemon.settings import engine_of
from shisha_rt.endpoint import ENDPOINT, default_endpoint
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.host.leases import FOLDER_VARIABLE
from shisha_rt.show.systemd_unit import Unit, is_temporary

if TYPE_CHECKING:
    from shisha_rt.daemon.settings import Settings
    from shisha_rt.machine.machine import Machine

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LONGEST_NAME: Final = 247
"""Characters of a unit, as systemd has it: 255 with `.service`."""
_ADDRESSES: Final = ("ipc://", "unix:")
"""Prefixes of addresses that are paths."""
_FILES: Final = ("calibration",)
"""Options that are files although they are parsed as text."""


def service(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG|MODEL... [SERVE'S OPTIONS]",
            help="As for serve, word for word.",
            autocompletion=offer_models,
        ),
    ],
    unit: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the unit, its cache and its runtime folder.")
    ] = "shisha-rt",
    user: Annotated[bool, typer.Option("--user", help="For your own systemd, instead of the host's.")] = False,
) -> None:
    """Print a systemd unit that serves a model, or several.

    It is started at boot, watched, and closed to all that it does not need. Nothing is started or installed now. What
    is named is checked as serve does it, and relative paths become absolute, so that the unit holds wherever it is
    kept. The host's systemd runs it as whoever prints it (as a user of its own if that is root), with the cache in
    /var/cache/NAME, by the name of the unit; with --user it shares the cache of the other commands.

    \b
    Examples:
      shisha-rt service zoo:squeezenet --http 127.0.0.1:8000
      shisha-rt service daemon.toml --unit camera > camera.service
      shisha-rt service --user model.onnx --machine board.toml > ~/.config/systemd/user/shisha-rt.service
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from msgspec.structs import replace

    from shisha_rt.daemon.front.addresses import addresses_of

    if not _NAME.fullmatch(unit) or len(unit) > _LONGEST_NAME:
        expected = f"letters, digits, and between them _ . -, at most {_LONGEST_NAME} in all"
        raise BadInput(f"--unit {unit}: expected {expected}", Error.WRONG_OPTION)
    words, options = _as_serve_reads(arguments)
    settings, machine, served = _served(options)
    of_environment = _of_environment(settings, options)
    settings = replace(settings, **of_environment)
    further = [word for name, value in of_environment.items() for word in (f"--{name}", value)]
    addresses_of(settings)
    printed = Unit(
        unit,
        ", ".join(Path(each.model).stem if "/" in each.model else each.model for each in served),
        [sys.executable, "-P", "-m", "shisha_rt", "serve", *words, *further],
        shlex.join(["shisha-rt", "service", *(["--user"] if user else []), "--unit", unit, *arguments, *further]),
        user=_runs_as(),
        sockets=list(_sockets(settings)),
        reads_again=settings.access is not None,
        generates_code=any(_generates_code(each, machine) for each in served),
        for_user=user,
        leases=None if settings.leases is None else Path(settings.leases),
        reads=[Path(word) for word in (sys.executable, *words, *(each.model for each in served)) if word[:1] == "/"],
    )
    print(printed.text, end="")
    if printed.user is None and not user:
        _warn_of_closed([*printed.reads, Path(sys.executable).resolve(), *printed.sockets])


def _warn_of_closed(paths: Sequence[Path]) -> None:
    """Say on standard error which path is out of reach of the user that systemd makes up, if one is."""
    for path in paths:
        closed = [folder for folder in path.parents if folder.exists() and not folder.stat().st_mode & stat.S_IXOTH]
        if closed or is_temporary(path):
            where = f"{closed[0]} is closed to it" if closed else "it has folders of its own for temporary files"
            print(
                f"shisha-rt service: {path}: the user that systemd makes up (DynamicUser=yes) cannot reach it: "
                f"{where}; keep it elsewhere, or set User= in place of DynamicUser=",
                file=sys.stderr,
            )
            return


def _as_serve_reads(arguments: Sequence[str]) -> tuple[list[str], Mapping[str, Any]]:
    """The words of a command line of `serve` with absolute paths, and its options by name. Raises as `serve` does."""
    reader = typer.Typer(add_completion=False)
    reader.command("serve")(serve)
    command = typer.main.get_command(reader)
    context = command.make_context("shisha-rt serve", list(arguments))
    options = {name: _absolute(name, value) for name, value in context.params.items()}
    words: list[str] = []
    for parameter in command.params:
        name = str(parameter.name)
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE"):
            words += _words(parameter.opts, parameter.secondary_opts, options[name])
    return words, options


def _served(options: Mapping[str, Any]) -> tuple[Settings, Machine, list[Settings]]:
    """Settings of the process that is started, its machine, and settings of each model.

    Raises BadInput for what `serve` refuses before it reads a model.
    """
    from shisha_rt.machine.config.machine_file import check_runnable, load_machine
    from shisha_rt.repository.entries import check_least, entries_of, names_several

    if names_several(options["source"]):
        settings, entries = entries_of(options["source"], keys_given(options))
    else:
        settings, entries = settings_of(options), []
    machine = load_machine(settings.machine)
    check_runnable(machine)
    check_least(entries, machine)
    served = [entry.settings for entry in entries] or [settings]
    for each in served:
        _check_model(each, machine)
    return settings, machine, served


def _check_model(settings: Settings, machine: Machine) -> None:
    """Raises BadInput for a network that the zoo does not have, and for what the machine cannot do for any model."""
    from shisha_rt.daemon.settings import check_machine, layer_kind
    from shisha_rt.measure.make_ready import check_devices
    from shisha_rt.model.zoo import check_named

    check_named(settings.model)
    check_machine(settings, machine)
    check_devices(
        machine,
        settings.precision,
        kind=layer_kind(settings, machine),
        shapes=len(settings.shape),
        calibration=None if settings.calibration is None else Path(settings.calibration),
    )


def _of_environment(settings: Settings, options: Mapping[str, Any]) -> dict[str, str]:
    """Options that `serve` would read from the environment of this shell, which a unit does not have."""
    variables = {}
    if options["endpoint"] is None and settings.endpoint == default_endpoint() != ENDPOINT:
        variables["endpoint"] = str(_absolute("endpoint", settings.endpoint))
    leases = os.environ.get(FOLDER_VARIABLE)
    if settings.leases is None and leases:
        variables["leases"] = str(Path(leases).absolute())
    return variables


def _words(names: Sequence[str], opposites: Sequence[str], value: object) -> Iterator[str]:
    """An option (or an argument, whose name has no dashes) as words of a command line."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, bool):
            yield (names if item else opposites)[0]
        else:
            yield from [names[0]] * names[0].startswith("-")
            yield str(item)


def _absolute(name: str, value: Any) -> Any:
    """The absolute path, if the option's value is a path; else `value` itself."""
    if isinstance(value, list):
        return [_absolute(name, item) for item in value]
    text = str(value)
    start = next((start for start in _ADDRESSES if text.startswith(start)), "")
    is_path = (
        isinstance(value, Path)
        or (name in _FILES and value is not None)
        or (name == "machine" and (text.endswith(".toml") or Path(text).is_file()))
        or (name == "source" and not text.startswith("zoo:"))
        or start
    )
    return f"{start}{Path(text.removeprefix(start)).absolute()}" if is_path else value


def _sockets(settings: Settings) -> Iterator[Path]:
    """UNIX sockets of the endpoint and of HTTP. Raises BadInput for a relative path, which only a daemon file has."""
    for address in (settings.endpoint, *settings.http):
        start = next((start for start in _ADDRESSES if address.startswith(start)), None)
        if start is not None:
            path = Path(address.removeprefix(start))
            if not path.is_absolute():
                raise BadInput(
                    f"{address}: a service is in no folder of its own; expected a path that begins with /",
                    Error.WRONG_OPTION,
                )
            yield path


def _generates_code(settings: Settings, machine: Machine) -> bool:
    """Whether OpenVINO may run, which writes machine code, and so needs memory that is writable and executable."""
    from shisha_rt.machine.config.device_files import running_devices
    from shisha_rt.measure.installed import installed_engines

    devices = [running_devices(machine, place, settings.precision) for place in machine.places]
    if any(devices):
        return any(device.engine == "openvino" for of_place in devices for device in of_place)
    return engine_of(settings, machine) != "onnxruntime" and "openvino" in installed_engines()


def _runs_as() -> str | None:
    """The user who prints the unit (under sudo, the one who called it), by number without a name; None for root."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:  # as in containers
            user = str(os.geteuid())
    return None if user == "root" else user
