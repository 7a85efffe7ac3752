"""What the demo has seen of a daemon: as the object of `--json`, in words, and as a PNG."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from shisha_rt.cli.views.picture import draw, milliseconds
from shisha_rt.cli.views.stages import slowest_of, stage_boxes
from shisha_rt.cli.views.story import Event

if TYPE_CHECKING:
    from shisha_rt.cli.drive.traffic import Gaps

Stages: TypeAlias = list[dict[str, Any]]
Say: TypeAlias = Callable[[str], None]

_AT_REST: Final = 0.85  # of what the slowest stage allows comes through when nothing else runs
_TRIAL_KEYS: Final = ("epoch", "stages", "reason", "verdict", "service_s", "throughput_fps", "band", "frames")


@dataclass(frozen=True, slots=True)
class Act:
    """One plan under load: what the client saw while it was live, and what the tuner measured of its stages."""

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
class Seen:
    """The demo's whole course."""

    status: Mapping[str, Any]
    seed: Act
    tuned: Act
    trials: Sequence[Event]
    end: Event
    sent: int
    answered: int
    lost: int
    out_of_order: int
    different: int
    errors: int
    faults: list[str]
    gaps: Gaps
    metrics_page: str
    metrics: list[str]

    @property
    def machine(self) -> str:
        """R9: its name never stands without it."""
        machine = self.status["machine"]
        return f"machine {machine['name']}{' (EMULATED)' if machine['emulated'] else ''}"

    @property
    def gain(self) -> float:
        """By the client's count."""
        return self.tuned.throughput_fps / self.seed.throughput_fps

    def as_object(self) -> dict[str, Any]:
        machine = self.status["machine"]
        return {
            "model": self.status["model"]["name"],
            "machine": {"name": machine["name"], "emulated": machine["emulated"]},
            "seed": asdict(self.seed),
            "tuned": asdict(self.tuned),
            "gain": self.gain,
            "trials": [{key: trial[key] for key in _TRIAL_KEYS} for trial in self.trials],
            "tuning": {"reason": self.end["reason"], "seconds": self.end["seconds"]},
            "epochs": self.status["plan"]["epoch"],
            "sent": self.sent,
            "answered": self.answered,
            "lost": self.lost,
            "out_of_order": self.out_of_order,
            "different": self.different,
            "errors": self.errors,
            "faults": self.faults,
            "gaps": asdict(self.gaps),
            "metrics": self.metrics,
        }


def tell_end(seen: Seen, drawn: Path | None, say: Say) -> None:
    seed, tuned, gaps = seen.seed, seen.tuned, seen.gaps
    name = sys.argv[0] if Path(sys.argv[0]).name == "shisha-rt" else "shisha-rt"
    outcome = "; ".join(seen.faults) or "none lost, all in order, every result as under the seed"
    say(
        f"The tuned plan on the {seen.machine}, with the time that each stage takes for a frame:\n\n"
        f"{draw(stage_boxes(tuned.stages, slowest_of(tuned.stages)), columns())}\n\n"
        f"throughput  {seed.throughput_fps:.0f} frames/s with the seed, {tuned.throughput_fps:.0f} tuned: "
        f"{seen.gain:.2f} times as many (EMULATED; the client's count, {seed.seconds:.3g} s each)\n"
        f"            {seed.tuner_throughput_fps:.0f} ±{seed.tuner_band:.1%} and {tuned.tuner_throughput_fps:.0f} "
        f"±{tuned.tuner_band:.1%} by the tuner's own measure, 1 / slowest stage\n"
        f"tuning      {len(seen.trials)} plans tried in {seen.end['seconds']:.1f} s under load, "
        f"epochs 1 to {seen.status['plan']['epoch']}\n"
        f"frames      {seen.sent} sent, {seen.answered} answered: {outcome}\n"
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


def _note(seen: Seen) -> str:
    """A line where the figures are not those of a machine at rest."""
    kept = min(act.throughput_fps / act.tuner_throughput_fps for act in (seen.seed, seen.tuned))
    if kept > _AT_REST:
        return ""
    return (
        f"note        other programs keep the cores busy: once only {kept:.0%} of the frames came that the slowest "
        "stage allows\n"
    )


def draw_png(seen: Seen, path: Path, say: Say) -> Path | None:
    """Both pipelines as a PNG; None if that could not be, which is said."""
    from shisha_rt.cli.views.figure import NoFigure, Panel, save_pipelines

    def panel(name: str, act: Act) -> Panel:
        own = f"{act.tuner_throughput_fps:.0f} ±{act.tuner_band:.1%} as its slowest stage allows"
        return Panel(f"{name}: {act.throughput_fps:.0f} frames/s at the client, {own}", act.stages)

    places = {place["name"]: f"{place['speed']:g} of a core" for place in seen.status["places"]}
    machine = seen.status["machine"]
    title = f"{seen.status['model']['name']} on machine {machine['name']}{' (emulated)' if machine['emulated'] else ''}"
    try:
        save_pipelines(path, title, [panel("Seed", seen.seed), panel("Tuned", seen.tuned)], places)
    except NoFigure as error:
        say(f"no picture is drawn: {error}\n")
        return None
    return path


def columns() -> int:
    """Of the terminal, or a customary number without one."""
    return shutil.get_terminal_size().columns
