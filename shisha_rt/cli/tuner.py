"""`shisha-rt tuner`: show the state of the tuner, and control it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from shisha_rt.cli.completion import offer
from shisha_rt.cli.options import DaemonOptions, Json, takes
from shisha_rt.plan.rate import AnyObjective
from shisha_rt.planner.strategies import LIVE, LiveName, SchemeName
from shisha_rt.protocol.limits import MAX_ALPHA
from shisha_rt.show.lines import aim_in_words
from shisha_rt.show.picture import milliseconds

Action = Literal["pause", "resume", "restart"]


@dataclass(frozen=True, slots=True)
class TunerOptions(DaemonOptions):
    action: Annotated[Action | None, typer.Argument(help="Without one, nothing is changed.")] = None
    alpha: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=MAX_ALPHA, help="Moves without gain that end a search; from the next one on."
        ),
    ] = None
    strategy: Annotated[
        Literal[LiveName, SchemeName] | None,
        typer.Option(
            metavar="S",
            help="shisha or guided; from the next search on. guided needs a daemon that knows costs.",
            autocompletion=offer(*LIVE),
        ),
    ] = None
    objective: Annotated[
        AnyObjective | None,
        typer.Option(help="What plans are optimised for; auto: as the load asks."),
    ] = None
    as_json: Json = False


@takes(TunerOptions)
def tuner(options: TunerOptions) -> None:
    """Show the tuner of a running daemon, or steer it.

    `pause` ends the search, and leaves the best plan so far live. `resume` searches again from the live plan if
    the tuner is paused, `restart` in any case.

    \b
    Examples:
      shisha-rt tuner
      shisha-rt tuner pause
      shisha-rt tuner restart --alpha 20
      shisha-rt tuner restart --strategy guided
      shisha-rt tuner restart --objective latency
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    wanted: dict[str, Any] = {options.action: True} if options.action else {}
    settings = {"alpha": options.alpha, "strategy": options.strategy, "objective": options.objective}
    wanted |= {name: value for name, value in settings.items() if value is not None}
    with options.client() as client:
        state = client.call("tuner_set", **wanted) if wanted else client.call("tuner_get")
    if options.as_json:
        print(json.dumps(state["tuner"]))
    else:
        print("\n".join(_lines(state["tuner"])))


def _lines(status: Mapping[str, Any]) -> list[str]:
    how = f"{status['strategy']}{aim_in_words(status)}, alpha {status['alpha']}, balance {status['balance']}"
    lines = [f"{status['state']} ({how})"]
    if status["trying"]:
        lines.append(f"trying      {status['trying']}")
    lines.append(f"run {status['run']:<7} trials: {status['trials']}")
    if status["objective"] == "auto":
        known = {name: best for name, best in status["plans"].items() if best is not None}
    else:
        known = {"its best": {name: status[f"best_{name}"] for name in ("throughput_fps", "latency_s", "plan")}}
    for name, best in known.items():
        if best["throughput_fps"]:
            latency = f"latency {milliseconds(best['latency_s'])} (unloaded)"
            lines.append(f"{name:<12}{best['throughput_fps']:.4g} frames/s, {latency}: {best['plan']}")
    lines.append(f"in all      trials: {status['trials_total']}, layers moved: {status['moves_total']}")
    return lines
