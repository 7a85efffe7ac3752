"""The cost of a change of plan under load: `python -m benchmarks live_change`.

A client streams without a pause; meanwhile another sets plans of two stages. Changes of one layer move the layer at the
cut to the other stage; changes of half the network swap the two places. Plans that alternate use stages that workers
have kept; if they cycle through more stages than workers keep, each change has its stages built (`built`). For every
change:

- the longest gap between two answers, from the request until the old plan's last frames are answered, over the median
  gap of the whole run. The same figure over equally long periods without a change shows the host's own variation
  (`quiet`).
- build time, warming time and private memory of the moved stage, as its worker reports them.
- throughput in the periods before, during and after.
"""

from __future__ import annotations

import bisect
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, number
from benchmarks.rigs.child_process import child_process
from benchmarks.rigs.client_process import IN_FLIGHT
from benchmarks.rigs.control import set_live
from shisha_rt.cli.drive.child_daemon import child_daemon
from shisha_rt.client import Client
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.seed import seed

MODELS: Final = "squeezenet,resnet50"
ONE_LAYER: Final = "one layer"
"""Or as many layers as there are between two legal cuts."""
HALF: Final = "half the network"
CUTS: Final = 5
"""With either half on either place this gives more stages than a worker keeps."""
_SETTLED_GAPS: Final = 12  # after the new plan is live: for the old plan's frames, and the new stages' first ones
_LEAD_S: Final = 1.5  # steady load before the first change
_CHANGE_S: Final = 0.3  # about as long as one takes, at most


@dataclass(frozen=True, slots=True)
class Change:
    """One change of plan. Times are of CLOCK_MONOTONIC; `stages`: as in `status` afterwards."""

    what: str
    asked_s: float
    live_s: float
    stages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Run:
    model: str
    answered_s: tuple[float, ...]
    changes: tuple[Change, ...]

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.answered_s)]

    @property
    def median_gap_s(self) -> float:
        return statistics.median(self.gaps_s)

    def during(self, change: Change) -> tuple[int, int]:
        """First and last index of the gaps that the change may have lengthened."""
        first = bisect.bisect_left(self.answered_s, change.asked_s) - 1
        last = bisect.bisect_left(self.answered_s, change.live_s) - 1 + _SETTLED_GAPS
        return max(first, 0), min(last, len(self.gaps_s) - 1)

    def longest_gap_s(self, first: int, last: int) -> float:
        return max(self.gaps_s[first : last + 1])

    def throughput_fps(self, first: int, last: int) -> float:
        """Answers per second over the gaps `first` to `last`."""
        return (last - first + 1) / (self.answered_s[last + 1] - self.answered_s[first])


def two_stage_plans(compiled: Compiled, machine: Machine) -> tuple[Plan, dict[str, Plan], list[tuple[str, Plan]]]:
    """The seed's plan on two places; the plans that it alternates with, by kind of change (one layer moved, the halves
    swapped); and a cycle of such changes, in which no place has a stage twice.
    """
    places = [place.name for place in machine.places[:2]]
    weights = [layer.weight for layer in compiled.layers]
    last = len(weights) - 1
    seeded = seed(weights, machine.places[:2], legal_cuts=compiled.legal_cuts).stages[0].last
    cuts = sorted(sorted(compiled.legal_cuts, key=lambda cut: (abs(cut - seeded), cut))[:CUTS])
    at = cuts.index(seeded)
    beside = cuts[at + 1] if at + 1 < len(cuts) else cuts[at - 1]

    def plan(cut: int, first: str, second: str) -> Plan:
        return Plan.of([(0, cut, first), (cut + 1, last, second)])

    base = plan(seeded, *places)
    there = [(ONE_LAYER, plan(cut, *places)) for cut in cuts[at:]]
    swapped = [(ONE_LAYER, plan(cut, *reversed(places))) for cut in reversed(cuts)]
    back = [(ONE_LAYER, plan(cut, *places)) for cut in cuts[: at + 1]]
    swaps = [(HALF, swapped[0][1]), *swapped[1:], (HALF, back[0][1]), *back[1:]]
    return base, {ONE_LAYER: plan(beside, *places), HALF: plan(seeded, *reversed(places))}, [*there[1:], *swaps]


def measure(model: str, machine: Machine, pairs: int, pause_s: float, in_flight: int) -> Run:
    """Stream frames and change the plan, `pairs` times there and back by each kind, and about as often in a cycle."""
    compiled = compile_model(resolve_model(f"zoo:{model}"))
    base, others, around = two_stage_plans(compiled, machine)
    steps = [(what, plan) for what, other in others.items() for _ in range(pairs) for plan in (other, base)]
    steps += around * math.ceil(2 * pairs / len(around))
    changes = []
    options = ("--machine", machine.source, "--strategy", "seed", "--engine", "onnxruntime", "--fresh")
    with (
        child_daemon(f"zoo:{model}", *options) as daemon,
        Client(daemon.endpoint) as control,
        child_process("benchmarks.rigs.client_process", endpoint=daemon.endpoint, in_flight=in_flight) as client,
    ):
        set_live(control, base)
        client.tell(seconds=_LEAD_S + len(steps) * (pause_s + _CHANGE_S))
        time.sleep(_LEAD_S)
        for what, plan in steps:
            changes.append(_change(control, what, plan, pause_s))
        times: list[float] = client.hear()["answered_s"]
    last_s = max(times, default=0.0)
    return Run(model, tuple(times), tuple(change for change in changes if change.live_s + pause_s <= last_s))


def _change(control: Client, what: str, plan: Plan, pause_s: float) -> Change:
    asked_s = time.monotonic()
    set_live(control, plan)
    live_s = time.monotonic()
    time.sleep(pause_s)
    return Change(what, asked_s, live_s, tuple(control.status()["plan"]["stages"]))


# --- what is shown --------------------------------------------------------------------------------------------


def change_rows(run: Run) -> Iterator[Row]:
    for change in run.changes:
        first, last = run.during(change)
        if first == 0 or last == len(run.gaps_s) - 1:
            continue  # the stream began or ended during the change
        length = last - first + 1
        before, after = (max(0, first - length), first - 1), (last + 1, min(last + length, len(run.gaps_s) - 1))
        yield {
            "model": run.model,
            "change": change.what,
            "built": sum(stage["build_s"] > 0 for stage in change.stages),
            "longest_gap_ms": 1e3 * run.longest_gap_s(first, last),
            "median_gap_ms": 1e3 * run.median_gap_s,
            "over_median": run.longest_gap_s(first, last) / run.median_gap_s,
            "quiet_over_median": run.longest_gap_s(*before) / run.median_gap_s,
            "until_live_ms": 1e3 * (change.live_s - change.asked_s),
            "build_ms": 1e3 * max(stage["build_s"] for stage in change.stages),
            "private_mb": max(stage["private_bytes"] for stage in change.stages) / 1e6,
            "fps_before": run.throughput_fps(*before),
            "fps_during": run.throughput_fps(first, last),
            "fps_after": run.throughput_fps(*after),
        }


def _summary(rows: Sequence[Row]) -> Row:
    """Medians over all changes of one kind, and the worst values of figures that should be small."""

    def figures(name: str) -> list[float]:
        return [number(row, name) for row in rows]

    return {
        "model": rows[0]["model"],
        "what moves": rows[0]["change"],
        "built": rows[0]["built"],
        "changes": len(rows),
        "median gap ms": statistics.median(figures("median_gap_ms")),
        "longest / median gap": statistics.median(figures("over_median")),
        "worst": max(figures("over_median")),
        "quiet": statistics.median(figures("quiet_over_median")),
        "worst quiet": max(figures("quiet_over_median")),
        "until live ms": statistics.median(figures("until_live_ms")),
        "build ms": statistics.median(figures("build_ms")),
        "private MB": statistics.median(figures("private_mb")),
        "fps before": statistics.median(figures("fps_before")),
        "during": statistics.median(figures("fps_during")),
        "after": statistics.median(figures("fps_after")),
    }


def show_changes(runs: Sequence[Run], report: Report) -> None:
    """A table to the terminal, every change to `live_change.csv`."""
    rows = [row for run in runs for row in change_rows(run)]
    if not rows:
        raise BadInput("live_change: no change fell into the stream of frames, expected some: try a longer --pause")
    kinds = sorted({(row["model"], row["change"], row["built"]) for row in rows}, key=str)
    report.show(
        "Changes of plan under load",
        [_summary([row for row in rows if (row["model"], row["change"], row["built"]) == kind]) for kind in kinds],
        [
            "built: stages that had to be built; what a worker had not long ago it has kept.",
            "quiet: the same over equally long spans just before each change. Aims: longest / median at most 2;",
            "half of ResNet-50 built in 10 ms without a private copy of its weights (46 or 56 MB).",
        ],
    )
    report.save(rows)


def live_change(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file, or this-machine; its first two places are used.")] = (
        "this-machine"
    ),
    pairs: Annotated[int, typer.Option(min=1, help="How often each change is made, there and back.")] = 6,
    pause: Annotated[float, typer.Option(min=0.1, help="Seconds between two changes.")] = 0.7,
    in_flight: Annotated[int, typer.Option(min=1, help="Frames that the client keeps in flight.")] = IN_FLIGHT,
    quick: Annotated[bool, typer.Option("--quick", help="Each change is made twice, there and back.")] = False,
) -> None:
    """What a change of plan costs while frames flow."""
    places = load_machine(machine)
    if len(places.places) < 2:
        raise BadInput(f"{machine}: {len(places.places)} place; expected at least 2, each with a core of its own")
    runs, report = [], Report("live_change", quick=quick)
    for model in models.split(","):
        report.step(model)
        runs.append(measure(model, places, 2 if quick else pairs, pause, in_flight))
    show_changes(runs, report)
