"""What several pictures show: SynthNet on C2, frames served in a simulation, and their parts as bars. Pure.

Frames are served by the real lifecycle (see `paper_daemon`), with times of parts by costs. So pictures show what
`core/lifecycle/` would do with these plans: which worker gets a frame, which epoch it uses, and when it is retired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from benchmarks.pictures.sheet import WIDTH, At, Sheet, figure, rect, text
from benchmarks.rigs.paper_daemon import PaperDaemon
from benchmarks.shisha.cases import SYNTHNET, Case, case, seeded
from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.tune import DEFAULT_HEURISTIC, shisha

# --- the walk and the costs of several pictures -----------------------------------------------------------------------


WALKED: Final = "C2"
"""Two fast places, and two whose cores take three times as long; each has eight cores."""
EQUAL: Final = "C6"
"""Eight equal places of four cores each."""
ON_WALKED: Final = f"SynthNet on machine {WALKED} of the Shisha paper, simulated from roofline costs"


@dataclass(frozen=True, slots=True)
class Walked:
    """The walk of Algorithm 2 from Algorithm 1's seed."""

    case: Case
    result: Result

    @property
    def seed(self) -> Plan:
        return self.result.trials[0].plan


@lru_cache
def walked() -> Walked:
    on = case(SYNTHNET, WALKED)
    walk = shisha(seeded(on), on.places, balance=DEFAULT_HEURISTIC.balance)
    return Walked(on, run(walk, SimulatedEvaluator(on.costs)))


@lru_cache
def equal() -> Case:
    return case(SYNTHNET, EQUAL)


def layers_of(stage: Stage) -> str:
    return f"layer {stage.first}" if stage.first == stage.last else f"layers {stage.first}–{stage.last}"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


# --- frames served in a simulation ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One frame at one stage: when it is ready, starts and ends."""

    frame: int
    stage: int
    epoch: int
    place: str
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """A plan from when its stages are built to its last frame; inf if that is after the end."""

    live_s: float
    retired_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """`parts`: by their starts, also those that end after the end; `answered_s`: of frames 1, 2, ...; `epochs`: 1, 2,
    ...
    """

    parts: tuple[Part, ...]
    answered_s: tuple[float, ...]
    epochs: tuple[Epoch, ...]


def served(
    costs: Costs, plans: Sequence[tuple[float, Plan]], *, in_flight: int, seconds: float, build_s: float = 0.0
) -> Served:
    """Simulate a client that keeps `in_flight` frames in flight, in one stream, from 0 s to `seconds`.

    `plans` are proposed at their times, the first at 0. A place builds each stage of a plan in `build_s`, while it goes
    on computing; the first plan's stages take no time.
    """
    paper = _Paper(costs, in_flight, build_s)
    paper.serve(plans, seconds)
    epochs = tuple(Epoch(at_s, paper.retired_s.get(number, math.inf)) for number, at_s in paper.live_s.items())
    parts = tuple(sorted(paper.parts, key=lambda part: (part.start_s, part.place)))
    return Served(parts, tuple(paper.answered_s), epochs)


class _Paper(PaperDaemon):
    """Records what the lifecycle does with proposed plans."""

    def __init__(self, costs: Costs, in_flight: int, build_s: float) -> None:
        places = [place.name for place in costs.places]
        lifecycle = Lifecycle(PlanRules(len(costs.layers), tuple(places)), in_flight, Policy())
        super().__init__(lifecycle.handle, in_flight, build_s)
        self.parts: list[Part] = []
        self.live_s: dict[int, float] = {}
        self.retired_s: dict[int, float] = {}
        self._evaluator = CostsEvaluator(costs)
        self._service_s: dict[int, tuple[float, ...]] = {}

    def serve(self, plans: Sequence[tuple[float, Plan]], seconds: float) -> None:
        for number, (at_s, plan) in enumerate(plans, start=1):
            self.at(at_s, ev.PlanProposed(ev.Owner.TUNER, number, plan, under=number - 1 or None))
        self.start()
        self.run(seconds)

    def service_s(self, part: do.RunPart, place: str) -> float:
        what = part.descriptor
        service_s = self._service_s[what.epoch][what.stage]
        end_s = self.now_s + service_s
        self.parts.append(Part(what.frame, what.stage, what.epoch, place, part.ready_s, self.now_s, end_s))
        return service_s

    def hear(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.EpochStarted(epoch=epoch, plan=plan):
                self._service_s[epoch] = self._evaluator.measurement_of(plan).service_s
            case do.Settled(epoch=epoch, ending=do.Ending.LIVE) if epoch is not None:
                self.live_s[epoch] = self.now_s
            case do.EpochEnded(epoch=epoch):
                self.retired_s[epoch] = self.now_s


# --- parts as bars on a time axis -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """The first place's row is at `top`; `seconds` of the machine's time are drawn between `left` and `right`."""

    names: Sequence[str]
    top: float
    row: float
    bar: float
    left: float
    right: float
    seconds: float

    @property
    def bottom(self) -> float:
        return self.top + self.row * len(self.names)

    def x_of(self, at_s: float) -> float:
        return self.left + (self.right - self.left) * min(at_s, self.seconds) / self.seconds

    def draw(self, sheet: Sheet, parts: Iterable[Part], colour_of: Callable[[Part], str], style: str) -> None:
        """Draw each part with the number of its frame; later parts are left out, those that end later cut."""
        for index, name in enumerate(self.names):
            y = self.top + self.row * index
            sheet.text(self.left - 8, y + self.bar / 2 + 4.5, name, f"{style} b e")
            sheet.rect(self.left, y, self.right - self.left, self.bar, "faint")
        bars: dict[str, list[str]] = {}
        numbers: list[str] = []
        for part in parts:
            if part.start_s < self.seconds:
                x, right = self.x_of(part.start_s), self.x_of(part.end_s)
                y = self.top + self.row * self.names.index(part.place)
                width = max(right - x - 1, 0.5)
                bars.setdefault(colour_of(part), []).append(
                    f"M{figure(x, 1)} {figure(y)}h{figure(width, 1)}v{figure(self.bar)}h-{figure(width, 1)}z"
                )
                if width > 8 * len(str(part.frame)):
                    numbers.append(
                        text(round((x + right) / 2, 1), y + self.bar / 2 + 4.5, str(part.frame), f"{style} c o")
                    )
        for colour, paths in bars.items():
            sheet.add(f'<path fill="var(--{colour})" d="{"".join(paths)}"/>')
        sheet.add("".join(numbers))

    def axis(self, sheet: Sheet, y: float, step_s: float = 0.2) -> None:
        for index in range(round(self.seconds / step_s) + 1):
            at_s = step_s * index
            sheet.text(self.x_of(at_s), y, f"{figure(at_s, 1)} s", "s m c")

    def uncovered(self, sheet: Sheet, top: float, bottom: float, seconds: float) -> None:
        """Uncover what was drawn between `top` and `bottom` as `seconds` pass, with a line at the present time."""
        cover = rect(0, top, WIDTH, bottom - top, "paper")
        line = f'<path d="M0 {figure(top)}V{figure(bottom)}" stroke="var(--ink)" stroke-width="1.5"/>'
        right = (At(0.0, self.left), At(seconds, self.right))
        sheet.moving(cover + line, (*right, At(seconds + 0.01, WIDTH + 2)))
