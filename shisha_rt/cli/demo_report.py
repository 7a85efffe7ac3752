"""The demo's results: as the object of `--json`, in words, and as a PNG."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from shisha_rt.show.event_words import Event
from shisha_rt.show.picture import draw, milliseconds
from shisha_rt.show.stages import slowest_of, stage_boxes

if TYPE_CHECKING:
    from shisha_rt.cli.drive.traffic import Traffic

Stages: TypeAlias = list[dict[str, Any]]
Say: TypeAlias = Callable[[str], None]

NAMES: Final = (SEED := "Shisha's seed", WALK := "Shisha's walk", GUIDED := "guided, as serve does")
_AT_REST: Final = 0.85  # least share of the slowest stage's rate that is reached if no other program runs
_TRIAL_KEYS: Final = ("epoch", "stages", "reason", "verdict", "service_s", "throughput_fps", "band", "frames")


@dataclass(frozen=True, slots=True)
class Act:
    """One plan under load: the client's figures while it was live, and the tuner's measurement of its stages."""

    stages: Stages
    frames: int
    seconds: float
    throughput_fps: float
    tuner_throughput_fps: float
    tuner_band: float

    @classmethod
    def of(cls, trial: Event, frames: int, seconds: float) -> Act:
        stages = [
            {**stage, "service_s": service_s}
            for stage, service_s in zip(trial["stages"], trial["service_s"], strict=True)
        ]
        return cls(stages, frames, seconds, frames / seconds, trial["throughput_fps"], trial["band"])


@dataclass(frozen=True, slots=True)
class Tried:
    """One tuner's trials under load, and its end, as events of the daemon."""

    strategy: str
    trials: Sequence[Event]
    end: Event

    @property
    def best(self) -> Event:
        return next(trial for trial in reversed(self.trials) if trial["plan"] == self.end["plan"])


@dataclass(frozen=True, slots=True)
class Seen:
    """All results of the demo. `acts`: of the seed, and of the plans with which `searches` ended, in this order."""

    status: Mapping[str, Any]
    acts: Mapping[str, Act]
    searches: tuple[Tried, Tried]
    traffic: Traffic
    metrics_page: str
    metrics: list[str]

    @property
    def machine(self) -> str:
        """The machine's name, never without saying that it is emulated (rule 9 of docs/design.md)."""
        machine = self.status["machine"]
        return f"machine {machine['name']}{' (EMULATED)' if machine['emulated'] else ''}"

    def gain(self, act: Act) -> float:
        return act.throughput_fps / self.acts["seed"].throughput_fps

    def as_object(self) -> dict[str, Any]:
        machine = self.status["machine"]
        return {
            "model": self.status["model"]["name"],
            "machine": {"name": machine["name"], "emulated": machine["emulated"]},
            **{name: {**asdict(act), "gain": self.gain(act)} for name, act in self.acts.items()},
            "trials": [
                {"strategy": search.strategy, **{key: trial[key] for key in _TRIAL_KEYS}}
                for search in self.searches
                for trial in search.trials
            ],
            "tuning": {
                search.strategy: {"reason": search.end["reason"], "seconds": search.end["seconds"]}
                for search in self.searches
            },
            "epochs": self.status["plan"]["epoch"],
            **self.traffic.counted,
            "faults": self.traffic.faults,
            "gaps": asdict(self.traffic.gaps()),
            "metrics": self.metrics,
        }


def heading(number: int, what: str) -> str:
    """A heading on a line of its own, bold at a terminal."""
    text = f"{number} of 3 · {what}"
    return f"\x1b[1m{text}\x1b[0m\n" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else f"{text}\n"


def tell_end(seen: Seen, drawn: Path | None, say: Say) -> None:
    guided, counted, gaps = seen.acts["guided"], seen.traffic.counted, seen.traffic.gaps()
    walked, tuned = (len(search.trials) for search in seen.searches)
    walked_s, tuned_s = (search.end["seconds"] for search in seen.searches)
    name = sys.argv[0] if Path(sys.argv[0]).name == "shisha-rt" else "shisha-rt"
    outcome = "; ".join(seen.traffic.faults) or "none lost, all in order, every result as under the seed"
    say(
        f"The guided plan on the {seen.machine}, with the time that each stage takes for a frame:\n\n"
        f"{draw(stage_boxes(guided.stages, slowest_of(guided.stages)), shutil.get_terminal_size().columns)}\n\n"
        f"throughput  {'EMULATED, frames/s':<24}{f'for {guided.seconds:.1f} s at the client':<26}1 / slowest stage\n"
        f"{''.join(_line(name, seen, act) for name, act in zip(NAMES, seen.acts.values(), strict=True))}"
        f"tuning      under load: {walked} plans tried by the walk in {walked_s:.1f} s, {tuned} by guided in "
        f"{tuned_s:.1f} s; epochs 1 to {seen.status['plan']['epoch']}\n"
        f"frames      {counted['sent']} sent, {counted['answered']} answered: {outcome}\n"
        f"gaps        between two answers: {milliseconds(gaps.median_s)} as a rule, {milliseconds(gaps.longest_s)} at "
        f"most, {milliseconds(gaps.change_s)} at most at a change of plan\n"
        f"picture     {drawn or 'none'}\n{_note(seen)}"
        f"metrics     {seen.metrics_page} said, among others:\n"
        + "".join(f"              {line}\n" for line in seen.metrics)
        + "\nNext, with a model of your own in place of zoo:squeezenet:\n"
        f"  {name} serve zoo:squeezenet         # stays, and tunes; then, from another terminal:\n"
        f"  {name} submit --frames 10000        # send frames, see throughput and latency\n"
        f"  {name} top                          # watch the pipeline and its tuner meanwhile\n"
        f"  {name} layers zoo:squeezenet        # see what a pipeline can move"
    )


def _line(name: str, seen: Seen, act: Act) -> str:
    gain = "" if name == SEED else f"{seen.gain(act):.2f} times"
    own = f"{act.tuner_throughput_fps:.0f} ±{act.tuner_band:.1%}"
    return f"            {name:<24}{act.throughput_fps:<6.0f}{gain:<20}{own}\n"


def _note(seen: Seen) -> str:
    """A warning if other programs have kept the machine busy; else empty."""
    kept = min(act.throughput_fps / act.tuner_throughput_fps for act in seen.acts.values())
    if kept > _AT_REST:
        return ""
    return (
        f"note        other programs keep the cores busy: once only {kept:.0%} of the frames came that the slowest "
        "stage allows\n"
    )


def draw_png(seen: Seen, path: Path, say: Say) -> Path | None:
    """Write all three pipelines as a PNG; None, with a message, if that fails."""
    from shisha_rt.show.figure import NoFigure, save_pipelines

    def panel(name: str, act: Act) -> tuple[str, Stages]:
        own = f"{act.tuner_throughput_fps:.0f} ±{act.tuner_band:.1%} as its slowest stage allows"
        return f"{name}: {act.throughput_fps:.0f} frames/s at the client, {own}", act.stages

    places = {place["name"]: f"speed {place['speed']:g}" for place in seen.status["places"]}
    machine = seen.status["machine"]
    title = f"{seen.status['model']['name']} on machine {machine['name']}{' (emulated)' if machine['emulated'] else ''}"
    try:
        panels = [panel(name, act) for name, act in zip(NAMES, seen.acts.values(), strict=True)]
        save_pipelines(path, title, panels, places)
    except NoFigure as error:
        say(f"no picture is drawn: {error}\n")
        return None
    return path
