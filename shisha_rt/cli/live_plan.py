"""`shisha-rt plan get`, `plan set` and `place set`: operations of clients, as commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shisha_rt.cli.options import DaemonOptions, Json, PrintsJson, takes
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.machine import MIN_SPEED

_PLAN_S: Final = 120.0
"""Longest time until a plan is live: stages of large networks are built while the present plan serves."""


@dataclass(frozen=True, slots=True)
class PlanGetOptions(DaemonOptions):
    as_json: PrintsJson = False


@takes(PlanGetOptions)
def plan_get(options: PlanGetOptions) -> None:
    """Print a daemon's live plan, to be kept in a file.

    `plan set` and `serve --plan` take such a file.

    \b
    Examples:
      shisha-rt plan get > plan.json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    with options.client() as client:
        print(json.dumps(client.plan()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetOptions(DaemonOptions):
    file: Annotated[
        Path, typer.Argument(metavar="PLAN.json", help="As plan get and plan --json print it, or its stages alone.")
    ]
    as_json: Json = False


@takes(PlanSetOptions)
def plan_set(options: PlanSetOptions) -> None:
    """Have a daemon serve by a plan, and wait until it is live.

    It pauses the tuner, until `shisha-rt tuner resume`.

    \b
    Examples:
      shisha-rt plan set plan.json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.measure.plan_file import plan_of_file

    plan = plan_of_file(options.file)
    with options.client() as client:
        client.live()
        answer = client.set_plan(plan, timeout_s=_PLAN_S)
    if options.as_json:
        print(json.dumps(answer))
    elif answer["outcome"] == "live":
        print(f"epoch {answer['epoch']} is live: {plan}")
    if answer["outcome"] != "live":
        raise Failure(f"{answer['outcome']}: {answer['reason']}", Error.PLAN_REFUSED, printed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSetOptions(DaemonOptions):
    place: Annotated[str, typer.Argument(metavar="PLACE", help="As status names it.")]
    up: Annotated[bool, typer.Option("--up", help="Start its worker, and plan with it again.")] = False
    down: Annotated[bool, typer.Option("--down", help="Plan without it, and end its worker.")] = False
    speed: Annotated[
        float | None, typer.Option(metavar="S", help="Emulate a slower place: 0.001 to 1, as fast as it is.")
    ] = None
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --speed: slow down this device of the place alone.")
    ] = None
    as_json: Json = False


@takes(PlaceSetOptions)
def place_set(options: PlaceSetOptions) -> None:
    """Take a place of a daemon up or down, or slow it down.

    \b
    Examples:
      shisha-rt place set core1 --down
      shisha-rt place set core1 --up
      shisha-rt place set core1 --speed 0.5
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    if (options.speed is not None) + options.up + options.down != 1:
        raise BadInput(f"place set {options.place}: expected exactly one of --up, --down and --speed")
    if options.speed is not None and not MIN_SPEED <= options.speed <= 1:
        raise BadInput(f"--speed {options.speed:g}: expected a number from {MIN_SPEED:g} to 1")
    wanted: dict[str, Any] = {"up": options.up, "down": options.down, "speed": options.speed, "device": options.device}
    wanted = {name: value for name, value in wanted.items() if value not in (None, False)}
    with options.client() as client:
        answer = client.call("place_set", place=options.place, **wanted)
    if options.as_json:
        print(json.dumps(answer))
    else:
        print(", ".join(f"{name} {value}" for name, value in answer.items()))
