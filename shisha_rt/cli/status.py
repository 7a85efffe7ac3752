"""`shisha-rt status`: the live plan as a picture, the state of its places, and counts of frames."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from shisha_rt.cli.layers import form_in_words
from shisha_rt.cli.models import expect_one_model, show_models
from shisha_rt.cli.options import DaemonOptions, Json, takes
from shisha_rt.model.input_sizes import shapes_in_words
from shisha_rt.show.lines import aim_in_words, counted, plain_console, plain_table, plan_in_words, waits_in_words
from shisha_rt.show.picture import draw, millijoules, milliseconds
from shisha_rt.show.stages import placement_lines, pool_lines, stage_boxes
from shisha_rt.show.why import why_lines


@dataclass(frozen=True, slots=True)
class StatusOptions(DaemonOptions):
    as_json: Json = False
    why: Annotated[bool, typer.Option("--why", help="Say what a slow frame waited for, and nothing else.")] = False


@takes(StatusOptions)
def status(options: StatusOptions) -> None:
    """Show what a running daemon does.

    Each stage is a box on its place, with the median time that it takes for a frame; a frame passes them from left to
    right, or from the top down where there are branches: each box then says which it comes after. The slowest stage
    sets the throughput. `x2` are copies, which take turns with frames; places with a plus between them compute one
    frame together.

    \b
    Examples:
      shisha-rt status
      shisha-rt status --endpoint ipc:///run/user/1000/shisha.sock
      shisha-rt status --endpoint tcp://192.168.1.20:5555 --key me.key_secret --server-key daemon.key
      shisha-rt status --why
      shisha-rt status --model detector
      shisha-rt status --json | jq .throughput_fps
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    with options.client() as client:
        daemon_status = client.status()
    if options.why:
        expect_one_model(daemon_status, "--why")
    if options.as_json:
        print(json.dumps(daemon_status))
    elif "models" in daemon_status:
        show_models(daemon_status["models"])
    elif options.why:
        print("\n".join(why_lines(daemon_status)))
    else:
        _show(daemon_status)


def _show(daemon_status: Mapping[str, Any]) -> None:
    # The picture is drawn to fit, and the terminal wraps long lines; rich has to lay out only the table.
    console = plain_console(soft_wrap=True)
    console.print(_headline(daemon_status), style="bold")
    console.print(_origin(daemon_status), style="dim")
    if "host" in daemon_status:
        console.print(_host(daemon_status["host"]), style="dim")
    if "tuner" in daemon_status:
        console.print(_tuner(daemon_status["tuner"], daemon_status.get("profiler_waits_s")), style="dim")
    console.print()
    stages = daemon_status["plan"]["stages"]
    boxes = stage_boxes(stages, daemon_status["bottleneck_stage"])
    console.print(draw(boxes, console.width) or "no plan is live yet")
    console.print()
    lines = [*pool_lines(stages), *placement_lines(stages)]
    if lines:
        console.print("\n".join(lines), end="\n\n")
    console.print(_places(daemon_status["places"]), soft_wrap=False)
    for place in daemon_status["places"]:
        if place["last_error"]:
            console.print(f"last error of {place['name']}: {place['last_error']}")
    console.print()
    console.print(_frames(daemon_status["frames"]))
    shapes_served = daemon_status["model"]["shapes"]
    if len(shapes_served) > 1:
        shapes = ", ".join(f"{shapes_in_words(shape['inputs'])} ({shape['frames']})" for shape in shapes_served)
        console.print(f"shapes: {shapes}")
    if daemon_status["fault"]:
        console.print(f"fault: {daemon_status['fault']}", style="red")


def _headline(daemon_status: Mapping[str, Any]) -> str:
    parts, fps = plan_in_words(daemon_status), daemon_status["throughput_fps"]
    if fps:
        parts.append(f"up to {fps:.4g} frames/s")
    if daemon_status["latency_s"] is not None:
        parts.append(f"latency {milliseconds(daemon_status['latency_s'])} (unloaded)")
    if daemon_status.get("energy_j") is not None:
        parts.append(f"{millijoules(daemon_status['energy_j'])} a frame by described power")
    return " · ".join(parts)


def _origin(daemon_status: Mapping[str, Any]) -> str:
    model, machine = daemon_status["model"], daemon_status["machine"]
    emulated = " (emulated)" if machine["emulated"] else ""
    form = "" if model["form"] == "prepacked" else f", {form_in_words(model['form'])}"
    compiled = f"compiled for {model['engine']}{form}"
    parts = [
        f"{counted(model['layers'], 'layer')}, {counted(model['legal_cuts'], 'cut')}",
        model["engine"] if model["engine"] == "plain" else compiled,
        f"machine {machine['name']}{emulated}",
        f"pid {daemon_status['pid']}",
        f"up {_duration(daemon_status['uptime_s'])}",
    ]
    return " · ".join(parts)


def _host(host: Mapping[str, Any]) -> str:
    parts = [host["why"]]
    if host["shared"]:
        parts.append(f"shared with another daemon: cores {', '.join(map(str, host['shared']))}")
    if host["throttled_s"]:
        parts.append(f"throttled for {_duration(host['throttled_s'])} in all")
    parts.append(f"others take {host['others_ratio']:.0%} of the cores")
    return " · ".join(parts)


def _tuner(tuner: Mapping[str, Any], waits_s: float | None) -> str:
    state = f"tuner {tuner['state']} ({tuner['strategy']}{aim_in_words(tuner)})"
    if waits_s is not None:
        state += f" · {waits_in_words(waits_s)}"
    return f"{state} · trials: {tuner['trials_total']} · layers moved: {tuner['moves_total']}"


def _places(places: Sequence[Mapping[str, Any]]) -> Any:
    from rich.text import Text

    table = plain_table(show_edge=False)
    table.add_column("place", no_wrap=True, overflow="ellipsis", min_width=5)
    table.add_column("state", no_wrap=True)
    table.add_column("cores", overflow="fold")
    table.add_column("pid", justify="right", no_wrap=True)
    table.add_column("restarts", justify="right", no_wrap=True)
    for place in places:
        speed = f", emulated at {place['speed']:g}" if place["emulated"] else ""
        is_serving = place["state"] == "up" and place["available"]
        planned = place["available"] or place["state"] == "released"
        state = place["state"] if planned else f"{place['state']}, not in planning"
        row: list[str | Text] = [
            Text(place["name"]),
            Text(state + speed, style="green" if is_serving else "yellow"),
            ",".join(map(str, place["cores"])),
            str(place["pid"] or "-"),
            str(place["restarts"]),
        ]
        table.add_row(*row)
    return table


def _frames(frames: Mapping[str, Any]) -> str:
    answered = ", ".join(f"{count} {outcome}" for outcome, count in frames["answered"].items()) or "none"
    slots = f"{frames['slots'] - frames['slots_free']} of {frames['slots']} slots taken"
    if "target_ms" in frames:
        answered += f" ({frames['in_time']} within {frames['target_ms']:g} ms)"
    line = f"frames answered: {answered} · in flight: {frames['in_flight']} ({slots})"
    return line + (f" · parts run again: {frames['replayed']}" if frames["replayed"] else "")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
