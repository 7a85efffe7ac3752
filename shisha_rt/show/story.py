"""The daemon's journal in words: what `events` prints and `top` shows of one event."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from shisha_rt.core import journal
from shisha_rt.core.journal import AnyRecord
from shisha_rt.show.picture import milliseconds

Event: TypeAlias = Mapping[str, Any]

_ALWAYS: Final = ("event", "time_s", "kind", "cause")


def clock(event: Event) -> str:
    """When it happened, by this machine's clock on the wall."""
    return time.strftime("%H:%M:%S", time.localtime(event["time_s"]))


def in_words(event: Event) -> str:
    """One line. A kind that is not known here, or has other fields, is told by its fields."""
    try:
        record = msgspec.convert(event, AnyRecord)
    except msgspec.ValidationError:  # of a daemon of another version
        text = _fields(event)
    else:
        text = _TELL[type(record)](record)
    return " ".join(text.split())


def verdict(trial: Event) -> str:
    return str(trial["verdict"]).replace("_", " ")


def rate(trial: Event) -> str:
    """Frames per second, or a dash for a plan that did not run."""
    return _fps(trial["throughput_fps"])


def latency(trial: Event) -> str:
    """Milliseconds of a frame by itself, or a dash for a plan that did not run."""
    latency_s = trial["latency_s"]
    return "-" if latency_s is None else milliseconds(latency_s).removesuffix(" ms")


def _fps(fps: float | None) -> str:
    return "-" if fps is None else f"{fps:#.4g}" if fps < 999.95 else f"{fps:.0f}"


def _trial(e: journal.TrialJudged) -> str:
    band = "" if e.band is None else f" ±{e.band:.1%}"
    trouble = f"; {e.trouble}" if e.trouble else ""
    measured = f"{_fps(e.throughput_fps)} frames/s{band}" if e.throughput_fps is not None else "not measured"
    alone = "" if e.latency_s is None else f", {milliseconds(e.latency_s)} for one by itself"
    judged = e.verdict.replace("_", " ")
    return f"trial {e.trial} of run {e.run}: {measured}{alone}, {judged}{trouble} ({e.reason}): {e.plan}"


def _began(e: journal.TuningBegan) -> str:
    objective = " for latency" if e.objective == "latency" else ""
    return f"tuning{objective} began, run {e.run} ({e.reason}): {e.plan}"


def _profiled(e: journal.ProfilingEnded) -> str:
    left_out = f", but for {e.left_out} teams whose cores frames had" if e.left_out else ""
    return f"what layers cost was measured in {e.seconds:.1f} s{left_out}"


def _on(place: str) -> str:
    return f" on {place}" if place else ""


def _ended(e: journal.TuningEnded) -> str:
    fps = "" if e.throughput_fps is None else f" at {_fps(e.throughput_fps)} frames/s"
    alone = "" if e.latency_s is None else f", {milliseconds(e.latency_s)} for one by itself"
    return f"tuning ended after {e.trials} trials and {e.seconds:.1f} s{fps}{alone} ({e.reason}): {e.plan}"


def _drift(e: journal.Drifted) -> str:
    now, before = milliseconds(e.service_s), milliseconds(e.before_s)
    return f"stage {e.stage} on {e.place} takes {now} now, {before} before"


def _placed(e: journal.PlacementSolved) -> str:
    stages = "; ".join(f"{s.place} ({milliseconds(s.cost_s)} predicted): {s.segments}" for s in e.stages)
    return f"operators placed by {e.solver} in {milliseconds(e.seconds)} ({e.reason}): {stages}"


def _settled(e: journal.PlanLive | journal.PlanRefused | journal.PlanDropped) -> str:
    name = "a plan" if e.epoch is None else f"epoch {e.epoch}"
    ending, why = _ENDINGS[type(e)], "" if isinstance(e, journal.PlanLive) else f" ({e.reason})"
    plan = f": {e.plan}" if e.plan else ""
    return f"{name} is {ending}{why}{plan}"


def _allotted(e: journal.PlacesAllotted) -> str:
    taken = [f"{', '.join(e.taken)} taken"] if e.taken else []
    released = [f"{', '.join(e.released)} released"] if e.released else []
    return f"{'; '.join(taken + released)}: {e.why}"


def _fields(e: Event) -> str:
    given = ", ".join(f"{key} {value}" for key, value in e.items() if key not in _ALWAYS)
    return f"{str(e['kind']).replace('_', ' ')}: {given}" if given else str(e["kind"])


_ENDINGS: Final = {journal.PlanLive: "live", journal.PlanRefused: "refused", journal.PlanDropped: "dropped"}
_TELL: Final[Mapping[type, Callable[[Any], str]]] = {
    journal.Readied: lambda e: f"ready at {e.endpoint}, metrics at {e.metrics}",
    journal.Draining: lambda e: f"stopping; {e.in_flight} frames are still in flight",
    journal.WorkerStarted: lambda e: f"a worker starts on {e.place}",
    journal.WorkerEnded: lambda e: f"the worker on {e.place} is gone: {e.reason}",
    journal.WorkerKilled: lambda e: f"the worker on {e.place} is to be killed: {e.reason}",
    journal.PartRaised: lambda e: f"stage {e.stage} failed on frame {e.frame}{_on(e.place)}: {e.reason}",
    journal.PlanPreparing: lambda e: f"epoch {e.epoch} is being prepared: {e.plan}",
    **dict.fromkeys(_ENDINGS, _settled),
    journal.Replanned: lambda e: f"a new plan of the daemon's own ({e.reason}): {e.plan}",
    journal.PlaceBroughtUp: lambda e: f"{e.place} is up, by request",
    journal.PlaceTakenDown: lambda e: f"{e.place} is down, by request",
    journal.PlaceGivenUp: lambda e: f"{e.place} is left out of planning: {e.reason}",
    journal.PlacesAllotted: _allotted,
    journal.PlaceMissed: lambda e: f"{e.place} has no worker for too long: plans are made without it until it is back",
    journal.PlaceIsBack: lambda e: f"{e.place} has a worker again",
    journal.PlaceSpeed: lambda e: f"the speed of {e.place} is {e.speed:g} now, {e.before:g} before",
    journal.DeviceSpeed: lambda e: f"the speed of {e.device} on {e.place} is {e.speed:g} now, by request",
    journal.DeviceRatio: lambda e: f"{e.device} on {e.place} takes {e.ratio:.3g} times what was known of it",
    journal.PlacementSolved: _placed,
    journal.PlacedAtOnce: lambda e: f"operators placed without a solver, as frames wait: {e.plan}",
    journal.PlacementRefused: lambda e: f"no other devices for the live plan: {e.reason}",
    journal.PlacerEnded: lambda e: f"the placer's process died and was started again: {e.reason}",
    journal.ProfilingBegan: lambda e: "measuring what layers cost, beside the frames",
    journal.ProfilingEnded: _profiled,
    journal.ProfilingFailed: lambda e: f"what layers cost could not be measured, so nothing is tuned: {e.reason}",
    journal.AccessRead: lambda e: f"the allow-list was read again: {e.users} users may come",
    journal.HttpEnded: lambda e: f"the HTTP process died and was started again: {e.reason}",
    journal.ProfilerEnded: lambda e: f"the profiler's process died and was started again: {e.reason}",
    journal.TuningBegan: _began,
    journal.ObjectiveChanged: lambda e: (
        f"{e.objective} from now on, as the load asks ({e.reason}): {e.plan or 'searched for'}"
    ),
    journal.TuningResumed: lambda e: f"tuning goes on from {e.reason}: {e.plan}",
    journal.TuningPaused: lambda e: f"tuning paused: {e.reason}",
    journal.TuningEnded: _ended,
    journal.TrialJudged: _trial,
    journal.Drifted: _drift,
    journal.TunerEnded: lambda e: f"the tuner's process died and was started again: {e.reason}",
}
