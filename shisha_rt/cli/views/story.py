"""The daemon's journal in words: what `events` prints and `top` shows of one event."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from shisha_rt.cli.status import milliseconds

Event: TypeAlias = Mapping[str, Any]

_ALWAYS: Final = ("event", "time_s", "kind")


def clock(event: Event) -> str:
    """When it happened, by this machine's clock on the wall."""
    return time.strftime("%H:%M:%S", time.localtime(event["time_s"]))


def in_words(event: Event) -> str:
    """One line. A kind that is not known here is told by its fields."""
    tell = _TELL.get(event["kind"])
    try:
        text = tell(event) if tell else _fields(event)
    except (KeyError, TypeError):  # of a daemon of another version
        text = _fields(event)
    return " ".join(text.split())


def verdict(trial: Event) -> str:
    return str(trial["verdict"]).replace("_", " ")


def rate(trial: Event) -> str:
    """Frames per second, or a dash for a plan that did not run."""
    fps = trial["throughput_fps"]
    return "-" if fps is None else f"{fps:#.4g}" if fps < 999.95 else f"{fps:.0f}"


def _trial(e: Event) -> str:
    band = "" if e["band"] is None else f" ±{e['band']:.1%}"
    trouble = f"; {e['trouble']}" if e["trouble"] else ""
    measured = f"{rate(e)} frames/s{band}" if e["throughput_fps"] is not None else "not measured"
    return f"trial {e['trial']} of run {e['run']}: {measured}, {verdict(e)}{trouble} ({e['reason']}): {e['plan']}"


def _ended(e: Event) -> str:
    fps = "" if e["throughput_fps"] is None else f" at {rate(e)} frames/s"
    return f"tuning ended after {e['trials']} trials and {e['seconds']:.1f} s{fps} ({e['reason']}): {e['plan']}"


def _drift(e: Event) -> str:
    now, before = milliseconds(e["service_s"]), milliseconds(e["before_s"])
    return f"stage {e['stage']} on {e['place']} takes {now} now, {before} before"


def _placed(e: Event) -> str:
    stages = "; ".join(f"{s['place']} ({milliseconds(s['cost_s'])} predicted): {s['segments']}" for s in e["stages"])
    return f"operators placed by {e['solver']} in {milliseconds(e['seconds'])} ({e['reason']}): {stages}"


def _settled(outcome: str) -> Callable[[Event], str]:
    def tell(e: Event) -> str:
        name = "a plan" if e["epoch"] is None else f"epoch {e['epoch']}"
        why = "" if outcome == "live" else f" ({e['reason']})"
        plan = f": {e['plan']}" if e["plan"] else ""
        return f"{name} is {outcome}{why}{plan}"

    return tell


def _fields(e: Event) -> str:
    given = ", ".join(f"{key} {value}" for key, value in e.items() if key not in _ALWAYS)
    return f"{str(e['kind']).replace('_', ' ')}: {given}" if given else str(e["kind"])


_TELL: Final[Mapping[str, Callable[[Event], str]]] = {
    "ready": lambda e: f"ready at {e['endpoint']}, metrics at {e['metrics']}",
    "draining": lambda e: f"stopping; {e['in_flight']} frames are still in flight",
    "worker_started": lambda e: f"a worker starts on {e['place']}",
    "worker_gone": lambda e: f"the worker on {e['place']} is gone: {e['reason']}",
    "part_failed": lambda e: f"stage {e['stage']} failed on frame {e['frame']}: {e['reason']}",
    "plan_preparing": lambda e: f"epoch {e['epoch']} is being prepared: {e['plan']}",
    "plan_live": _settled("live"),
    "plan_refused": _settled("refused"),
    "plan_dropped": _settled("dropped"),
    "replan": lambda e: f"a new plan of the daemon's own ({e['reason']}): {e['plan']}",
    "place_up": lambda e: f"{e['place']} is up, by request",
    "place_down": lambda e: f"{e['place']} is down, by request",
    "place_given_up": lambda e: f"{e['place']} is left out of planning: {e['reason']}",
    "place_speed": lambda e: f"the speed of {e['place']} is {e['speed']:g} now, {e['before']:g} before",
    "device_speed": lambda e: f"the speed of {e['device']} on {e['place']} is {e['speed']:g} now, by request",
    "device_ratio": lambda e: f"{e['device']} on {e['place']} takes {e['ratio']:.3g} times what was known of it",
    "placement_solved": _placed,
    "placement_refused": lambda e: f"no other devices for the live plan: {e['reason']}",
    "placer_died": lambda e: f"the placer's process died and was started again: {e['reason']}",
    "tuning_began": lambda e: f"tuning began, run {e['run']} ({e['reason']}): {e['plan']}",
    "tuning_resumed": lambda e: f"tuning goes on from {e['reason']}: {e['plan']}",
    "tuning_paused": lambda e: f"tuning paused: {e['reason']}",
    "tuning_ended": _ended,
    "trial": _trial,
    "drift": _drift,
    "tuner_died": lambda e: f"the tuner's process died and was started again: {e['reason']}",
}
