"""The daemon's event log as text: the line that `events` prints and `top` shows for an event."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from shisha_rt.core import event_log
from shisha_rt.core.event_log import AnyRecord
from shisha_rt.show.lines import counted
from shisha_rt.show.picture import millijoules, milliseconds

Event: TypeAlias = Mapping[str, Any]

_ALWAYS: Final = ("event", "time_s", "kind", "cause")


def clock(event: Event) -> str:
    """Local time of the event, as HH:MM:SS."""
    return time.strftime("%H:%M:%S", time.localtime(event["time_s"]))


def in_words(event: Event) -> str:
    """One line. A kind that is not known here, or has other fields, is told by its fields."""
    try:
        record = msgspec.convert(event, AnyRecord)
    except msgspec.ValidationError:  # an event from a daemon of another version
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
    """Unloaded latency in milliseconds (one frame alone), or a dash for a plan that did not run."""
    latency_s = trial["latency_s"]
    return "-" if latency_s is None else milliseconds(latency_s).removesuffix(" ms")


def _fps(fps: float | None) -> str:
    return "-" if fps is None else f"{fps:#.4g}" if fps < 999.95 else f"{fps:.0f}"


def _engines(event: event_log.EnginesFound) -> str:
    left_out = "".join(f"; not {engine}: {why}" for engine, why in event.left_out.items())
    return f"engines that may compute this network: {', '.join(event.usable)}{left_out}"


def _compared(event: event_log.PlansCompared) -> str:
    if event.verdict == "cannot_run":
        return f"{event.name} cannot run: {event.reason}"
    if event.ratio is None or event.seconds is None or event.against_seconds is None:
        return f"{event.name} was not compared with {event.against}: frames did not come in a way to tell"
    times = f"{event.seconds * 1e3:.3g} ms a frame, {event.against_seconds * 1e3:.3g} ms with {event.against}"
    verdict = {"better": "better", "not_better": "not better"}.get(event.verdict, "not known to be better")
    pairs = counted(event.pairs, "pair")
    return f"{event.name} is {verdict}: {times} ({event.ratio:.2f} times as fast, {pairs} of windows)"


def _trial(e: event_log.TrialJudged) -> str:
    band = "" if e.band is None else f" ±{e.band:.1%}"
    trouble = f"; {e.trouble}" if e.trouble else ""
    measured = f"{_fps(e.throughput_fps)} frames/s{band}" if e.throughput_fps is not None else "not measured"
    judged = e.verdict.replace("_", " ")
    return f"trial {e.trial} of run {e.run}: {measured}{_alone(e)}, {judged}{trouble} ({e.reason}): {e.plan}"


def _alone(e: event_log.TrialJudged | event_log.TuningEnded) -> str:
    latency = "" if e.latency_s is None else f", latency {milliseconds(e.latency_s)} (unloaded)"
    return latency + ("" if e.energy_j is None else f", {millijoules(e.energy_j)} a frame")


def _waits(e: event_log.ProfilerWaits) -> str:
    if e.seconds is None:
        return "measuring waits while another process measures on this host"
    return f"measuring goes on, after {e.seconds:.1f} s in which another process measured on this host"


def _began(e: event_log.TuningBegan) -> str:
    objective = "" if e.objective == "throughput" else f" for {e.objective}"
    return f"tuning{objective} began, run {e.run} ({e.reason}): {e.plan}"


def _profiled(e: event_log.ProfilingEnded) -> str:
    teams = counted(e.left_out, "team")
    left_out = f"; {teams} not measured, as frames had the cores" if e.left_out else ""
    return f"layers measured in {e.seconds:.1f} s{left_out}"


def _ended(e: event_log.TuningEnded) -> str:
    fps = "" if e.throughput_fps is None else f" at {_fps(e.throughput_fps)} frames/s"
    return (
        f"tuning ended after {counted(e.trials, 'trial')} and {e.seconds:.1f} s{fps}{_alone(e)} ({e.reason}): {e.plan}"
    )


def _placed(e: event_log.PlacementSolved) -> str:
    stages = "; ".join(f"{s.place} ({milliseconds(s.cost_s)} predicted): {s.segments}" for s in e.stages)
    return f"operators placed by {e.solver} in {milliseconds(e.seconds)} ({e.reason}): {stages}"


def _settled(e: event_log.PlanLive | event_log.PlanRefused | event_log.PlanDropped) -> str:
    name = "a plan" if e.epoch is None else f"epoch {e.epoch}"
    ending, why = _ENDINGS[type(e)], "" if isinstance(e, event_log.PlanLive) else f" ({e.reason})"
    plan = f": {e.plan}" if e.plan else ""
    return f"{name} is {ending}{why}{plan}"


def _allotted(e: event_log.PlacesAllotted) -> str:
    taken = [f"{', '.join(e.taken)} taken"] if e.taken else []
    released = [f"{', '.join(e.released)} released"] if e.released else []
    return f"{'; '.join(taken + released)}: {e.why}"


def _link(e: event_log.LinkChanged) -> str:
    there = f"{milliseconds(e.there_latency_s)} and {_megabytes(e.there_bytes_per_s)}/s there"
    back = f"{milliseconds(e.back_latency_s)} and {_megabytes(e.back_bytes_per_s)}/s back"
    return f"the link to {e.place} is another one now: {there}, {back}"


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.3g} MB" if count < 999.5e6 else f"{count / 1e6:.0f} MB"


def _fields(e: Event) -> str:
    given = ", ".join(f"{key} {value}" for key, value in e.items() if key not in _ALWAYS)
    return f"{str(e['kind']).replace('_', ' ')}: {given}" if given else str(e["kind"])


_ENDINGS: Final = {event_log.PlanLive: "live", event_log.PlanRefused: "refused", event_log.PlanDropped: "dropped"}
_TELL: Final[Mapping[type, Callable[[Any], str]]] = {
    event_log.Readied: lambda e: f"ready at {e.endpoint}, metrics at {e.metrics}",
    event_log.Draining: lambda e: f"stopping; {counted(e.in_flight, 'frame')} still in flight",
    event_log.WorkerStarted: lambda e: f"a worker starts on {e.place}",
    event_log.WorkerEnded: lambda e: f"the worker on {e.place} is gone: {e.reason}",
    event_log.WorkerKilled: lambda e: f"the worker on {e.place} is to be killed: {e.reason}",
    event_log.PartRaised: lambda e: (
        f"stage {e.stage} failed on frame {e.frame}{' on ' * bool(e.place)}{e.place}: {e.reason}"
    ),
    event_log.PlanPreparing: lambda e: f"epoch {e.epoch} is being prepared: {e.plan}",
    **dict.fromkeys(_ENDINGS, _settled),
    event_log.Replanned: lambda e: f"a new plan of the daemon's own ({e.reason}): {e.plan}",
    event_log.PlaceBroughtUp: lambda e: f"{e.place} is up, by request",
    event_log.ModelStarting: lambda e: f"{e.model} (version {e.version}) starts on {', '.join(e.places)}",
    event_log.ModelServes: lambda e: f"{e.model} (version {e.version}) serves" + ", as it did" * e.taken_over,
    event_log.ModelEnded: lambda e: f"{e.model} (version {e.version}) has ended: {e.reason}",
    event_log.ModelGivenUp: lambda e: f"{e.model} (version {e.version}) is given up: {e.reason}",
    event_log.ModelShadowed: lambda e: (
        f"{e.model}: version {e.version} computed {e.compared} frames that were answered: {e.different} differ by more "
        f"than rounding (at most {e.difference:.1e} of an output's largest value)"
        + (f"; one failed: {e.reason}" if e.failed else "")
    ),
    event_log.ModelReplaced: lambda e: f"{e.model}: version {e.version} has taken over from {e.before}",
    event_log.ModelUnloaded: lambda e: f"{e.model} (version {e.version}) is unloaded",
    event_log.PlaceDealt: lambda e: f"{e.model} has {e.place}",
    event_log.PlaceTakenBack: lambda e: f"{e.model} has given up {e.place}",
    event_log.PlaceTakenDown: lambda e: f"{e.place} is down, by request",
    event_log.PlaceLeft: lambda e: f"{e.place} is released: its cores are free for others",
    event_log.PlaceGivenUp: lambda e: f"{e.place} is left out of planning: {e.reason}",
    event_log.PlacesAllotted: _allotted,
    event_log.PlaceMissed: lambda e: (
        f"{e.place} has no worker for too long: plans are made without it until it is back"
    ),
    event_log.PlaceIsBack: lambda e: f"{e.place} has a worker again",
    event_log.PlaceSpeed: lambda e: f"the speed of {e.place} is {e.speed:g} now, {e.before:g} before",
    event_log.DeviceSpeed: lambda e: f"the speed of {e.device} on {e.place} is {e.speed:g} now, by request",
    event_log.DeviceRatio: lambda e: f"{e.device} on {e.place} takes {e.ratio:.3g} times what was known of it",
    event_log.PlacementSolved: _placed,
    event_log.PlacedAtOnce: lambda e: f"operators placed without a solver, as frames wait: {e.plan}",
    event_log.PlacementRefused: lambda e: f"no other devices for the live plan: {e.reason}",
    event_log.PlacerEnded: lambda e: f"the placer's process died and was started again: {e.reason}",
    event_log.ProfilingBegan: lambda e: "measuring what layers cost, beside the frames",
    event_log.MeasuringLayers: lambda e: "measuring layers one by one now",
    event_log.ProfilingEnded: _profiled,
    event_log.ProfilingFailed: lambda e: f"what layers cost could not be measured, so nothing is tuned: {e.reason}",
    event_log.ProfilerWaits: _waits,
    event_log.AccessRead: lambda e: f"the allow-list was read again, users: {e.users}",
    event_log.HttpEnded: lambda e: f"the HTTP process died and was started again: {e.reason}",
    event_log.TracerEnded: lambda e: f"the tracer's process died and was started again: {e.reason}",
    event_log.ClusterEnded: lambda e: f"the cluster process died and was started again: {e.reason}",
    event_log.HostCame: lambda e: f"host {e.host} has {e.place}",
    event_log.HostLost: lambda e: f"{e.place} has lost its host: {e.reason}",
    event_log.LinkChanged: _link,
    event_log.ProfilerEnded: lambda e: f"the profiler's process died and was started again: {e.reason}",
    event_log.TuningBegan: _began,
    event_log.ObjectiveChanged: lambda e: (
        f"{e.objective} from now on, as the load asks ({e.reason}): {e.plan or 'searched for'}"
    ),
    event_log.EnginesFound: _engines,
    event_log.ComparisonBegan: lambda e: (
        f"comparing plans for {e.objective}{f' again ({e.reason})' if e.reason else ''}, in turns with the one that "
        f"serves: {'; '.join(e.candidates) or 'none'}"
    ),
    event_log.PlansCompared: _compared,
    event_log.ComparisonEnded: lambda e: (
        f"best of {e.candidates} plans compared for {e.objective}: {e.name} ({e.plan})"
    ),
    event_log.OwnFramesBegan: lambda e: f"no frames come: computing its own, to compare plans for {e.objective}",
    event_log.OwnFramesEnded: lambda e: f"no more of its own ({e.frames} frames, {e.seconds:.1f} s in all): {e.reason}",
    event_log.TuningResumed: lambda e: f"tuning goes on from {e.reason}: {e.plan}",
    event_log.TuningPaused: lambda e: f"tuning paused: {e.reason}",
    event_log.TuningEnded: _ended,
    event_log.TrialJudged: _trial,
    event_log.Drifted: lambda e: (
        f"stage {e.stage} on {e.place} takes {milliseconds(e.service_s)} now, {milliseconds(e.before_s)} before"
    ),
    event_log.TunerEnded: lambda e: f"the tuner's process died and was started again: {e.reason}",
}
