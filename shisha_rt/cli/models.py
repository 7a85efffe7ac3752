"""`shisha-rt models`: list the models that one address serves; load, replace, undo and unload them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shisha_rt.cli.options import DaemonOptions, Json, PrintsJson, takes
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.limits import MAX_SHADOW_FRAMES
from shisha_rt.show.lines import plain_console, plain_table

_TIMEOUT_S: Final = 600.0
"""For an answer: a model may have to be compiled first."""

ModelName = Annotated[str, typer.Argument(metavar="NAME", help="Of a model, as requests have it.")]


@dataclass(frozen=True, slots=True)
class ModelsOptions(DaemonOptions):
    as_json: Json = False


@takes(ModelsOptions)
def models(options: ModelsOptions) -> None:
    """List the models at an address: versions, places, frames.

    \b
    Examples:
      shisha-rt models
      shisha-rt models --json | jq -r '.models[].name'
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    with options.client() as client:
        index = client.call("repository_index")["models"]
        status = client.status()
    if "models" in status:
        of_each = {model["name"]: model for model in status["models"]}
    else:  # a daemon of one model, whose status is of that alone
        places = [place["name"] for place in status["places"]]
        rest = {key: status[key] for key in ("frames", "throughput_fps")}
        of_each = {model["name"]: {"places": places, **rest} for model in index}
    listed = [{**model, **of_each.get(model["name"], {})} for model in index]
    if options.as_json:
        print(json.dumps({"models": listed}))
    else:
        show_models(listed)


def expect_one_model(status: Mapping[str, Any], what: str) -> None:
    """Raises BadInput, with the models' names, if a `status` is of several models; `what` needs one."""
    if "models" in status:
        names = ", ".join(model["name"] for model in status["models"])
        raise BadInput(
            f"several models are served; {what} is of one: expected --model with one of {names}", Error.UNKNOWN_MODEL
        )


def show_models(listed: Sequence[Mapping[str, Any]]) -> None:
    """Print models, as `repository_index` and `status` describe them, as a table with one line each."""
    table = plain_table(show_edge=False)
    for column in ("model", "version", "state", "places", "frames/s", "in flight", "answered"):
        longest = max(map(len, column.split()))
        table.add_column(column, no_wrap=column == "answered", overflow="fold", min_width=longest)
    for model in listed:
        shared, frames = model.get("shared", ()), model.get("frames") or {}
        places = " ".join(f"{place}*" if place in shared else place for place in model.get("places", ()))
        rate = model.get("throughput_fps")
        state = f"{model['state']}: {model['reason']}" if model["reason"] else str(model["state"])
        table.add_row(
            model["name"],
            model["version"],
            state,
            places,
            "" if rate is None else f"up to {rate:.4g}",
            str(frames.get("in_flight", "")),
            str(frames.get("answered", {}).get("OK", "")),
        )
    console = plain_console()
    console.print(table)
    if any(model.get("shared") for model in listed):
        console.print("* shared with another model", style="dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(DaemonOptions):
    name: ModelName
    file: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Its file, or zoo:NAME. Default: as known."),
    ] = None
    version: Annotated[str | None, typer.Option(metavar="VERSION", help="What it is called. Default: one more.")] = None
    shadow: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=MAX_SHADOW_FRAMES,
            help="First have it compute N frames that are answered, and compare.",
        ),
    ] = 0
    as_json: PrintsJson = False


@takes(LoadOptions)
def models_load(options: LoadOptions) -> None:
    """Serve a model, or a new version of it once that is warm.

    \b
    Examples:
      shisha-rt models load detector --file detector-4.onnx --version 4
      shisha-rt models load detector --file detector-5.onnx --shadow 1000
      shisha-rt models load recogniser
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    file = options.file
    if file is not None and not file.startswith("zoo:"):
        file = str(Path(file).absolute())
    wanted = {"model": file, "version": options.version, "shadow": options.shadow or None}
    _change(options, "model_load", options.name, {key: value for key, value in wanted.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class NameOptions(DaemonOptions):
    name: ModelName
    as_json: PrintsJson = False


@takes(NameOptions)
def models_unload(options: NameOptions) -> None:
    """End a model's daemon, once it has answered what it has.

    Its places go to others.

    \b
    Examples:
      shisha-rt models unload recogniser
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    _change(options, "model_unload", options.name, {})


@takes(NameOptions)
def models_undo(options: NameOptions) -> None:
    """Go back to the version that a model had before.

    \b
    Examples:
      shisha-rt models undo detector
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    _change(options, "model_undo", options.name, {})


def _change(options: DaemonOptions, op: str, name: str, arguments: Mapping[str, object]) -> None:
    """Call an operation on a model and print the model as it is then; `name` alone if it is no longer listed."""
    with options.client() as client:
        client.live()  # else a daemon that is not there would be waited for as long as a model may take to start
        answer = client.call(op, timeout_s=_TIMEOUT_S, model_name=name, **arguments)
        index = client.call("repository_index")["models"]
    shadow = {key: value for key, value in answer.items() if key == "shadow"}
    print(json.dumps({**next((model for model in index if model["name"] == name), {"name": name}), **shadow}))
