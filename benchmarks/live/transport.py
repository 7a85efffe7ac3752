"""The cost of the pipeline beyond its stages: `python -m benchmarks transport`.

Two unthrottled stages, one on each of two cores, with the best cut by measurements. The sides take turns in every
round, all in milliseconds per frame at saturation:

- `alone`: each stage alone on its own worker; the slower of the two. It is the bound of any pipeline with this cut, and
  the reference of all ratios.
- `both busy`: both stages at once, without waiting for each other; the slower one. The difference to `alone` is due to
  shared memory bandwidth and caches, which no transport can avoid.
- `generated`: the pipeline with frames generated inside the daemon, which moves descriptors only; `copied`: the same
  with each frame's input copied into its slot.
- `tcp`, `ipc`: the pipeline through gateway and client, one client process with several frames in flight.
- `whole`: the whole model on one core; `copies`: a whole copy on each core, which is the rival on equal cores.

CPU is that of whole processes, ZeroMQ's I/O threads included, per frame; `loop` is the daemon's main thread.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.figures import transport_figure
from benchmarks.report.results import Row, save_csv, save_figure, show
from benchmarks.rigs.balance import TwoStages, best_two_stages
from benchmarks.rigs.served import IN_FLIGHT, Reading, Served, served, two_places
from benchmarks.rigs.stage_rig import Loaded, StageRig, stage_rig
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.plan import Plan

MODELS: Final = "squeezenet,resnet50,shufflenet,densenet121"

PROTOTYPE: Final[Mapping[str, tuple[float, float]]] = {
    "squeezenet": (1.67, 1.67),  # its slowest stage took 1.62 to 1.72
    "resnet50": (19.1, 18.6),
    "shufflenet": (1.40, 1.2),
    "densenet121": (16.6, 16.5),
}
"""Times of a prototype on another machine, in ms per frame: pipeline with generated frames, slowest stage alone."""


Round = Mapping[str, Reading]


@dataclass(frozen=True, slots=True)
class Measured:
    """All rounds of one model with one cut."""

    model: str
    cut: int
    layer_count: int
    rounds: tuple[Round, ...]

    def frame_ms(self, side: str) -> float:
        return 1e3 * statistics.median(r[side].frame_s for r in self.rounds)

    def over_alone(self, side: str) -> float:
        """The median of ratios within rounds, as a slow moment of the host affects both sides of a round."""
        return statistics.median(r[side].frame_s / r["alone"].frame_s for r in self.rounds)

    def cpu_us(self, side: str, part: str) -> float | None:
        figures = [getattr(r[side], part) for r in self.rounds]
        return None if None in figures else 1e6 * statistics.median(figures)

    def row(self, side: str) -> Row:
        """The row of one side in the CSV."""
        frames_ms = [1e3 * r[side].frame_s for r in self.rounds]
        return {
            "model": self.model,
            "side": side,
            "frame_ms": self.frame_ms(side),
            "frame_ms_min": min(frames_ms),
            "frame_ms_max": max(frames_ms),
            "over_alone": self.over_alone(side),
            "daemon_loop_cpu_us": self.cpu_us(side, "loop_cpu_s"),
            "daemon_other_cpu_us": self.cpu_us(side, "other_cpu_s"),
            "client_cpu_us": self.cpu_us(side, "client_cpu_s"),
        }


def measure(model: str, machine: Machine, seconds: float, round_count: int, in_flight: int) -> Measured:
    """Find the best cut of one model and measure all sides in turns."""
    compiled = compile_model(resolve_model(f"zoo:{model}"))
    layer_count = len(compiled.layers)
    with contextlib.ExitStack() as closing:
        folder = closing.enter_context(tempfile.TemporaryDirectory())
        by_endpoint = {
            transport: closing.enter_context(served(f"zoo:{model}", machine.source, endpoint, in_flight))
            for transport, endpoint in (("tcp", "tcp://127.0.0.1:0"), ("ipc", f"ipc://{folder}/daemon"))
        }
        rig = closing.enter_context(stage_rig(compiled, machine, by_endpoint["tcp"].slots))
        best = best_two_stages(rig, sorted(compiled.legal_cuts), layer_count)
        wholes = [rig.load(worker, 0, layer_count - 1) for worker in (0, 1)]
        first, second = (place.name for place in machine.places[:2])
        for one in by_endpoint.values():
            one.take(Plan.of([(0, best.cut, first), (best.cut + 1, layer_count - 1, second)]))
            one.generate(0.1, copied=True)
        rounds = tuple(_round(rig, best, wholes, by_endpoint, seconds) for _ in range(round_count))
    return Measured(model, best.cut, layer_count, rounds)


def _round(
    rig: StageRig, best: TwoStages, wholes: Sequence[Loaded], by_endpoint: Mapping[str, Served], seconds: float
) -> Round:
    stages = [rig.alone(stage, seconds) for stage in best.stages]
    generated = by_endpoint["tcp"].generate(seconds, copied=False)
    copied = by_endpoint["tcp"].generate(seconds, copied=True)
    both = rig.saturate(best.stages, [rate.service_s for rate in stages], seconds)
    streamed = {transport: one.stream(seconds) for transport, one in by_endpoint.items()}
    whole = rig.alone(wholes[0], seconds)
    copies = rig.saturate(wholes, [whole.service_s] * 2, seconds)
    return {
        "alone": Reading(max(rate.frame_s for rate in stages)),
        "both busy": Reading(max(rate.frame_s for rate in both)),
        "generated": generated,
        "copied": copied,
        **streamed,
        "whole": Reading(whole.frame_s),
        "copies": Reading(1 / sum(1 / rate.frame_s for rate in copies)),
    }


# --- what is shown --------------------------------------------------------------------------------------------


def _pipeline_row(measured: Measured) -> Row:
    pipeline_ms, stage_ms = PROTOTYPE.get(measured.model, (None, None))
    return {
        "model": measured.model,
        "cut": f"{measured.cut} of {measured.layer_count}",
        "alone ms": measured.frame_ms("alone"),
        "both busy ms": measured.frame_ms("both busy"),
        "generated ms": measured.frame_ms("generated"),
        "copied ms": measured.frame_ms("copied"),
        "both busy / alone": measured.over_alone("both busy"),
        "generated / alone": measured.over_alone("generated"),
        "copied / alone": measured.over_alone("copied"),
        "prototype / its stage": pipeline_ms / stage_ms if pipeline_ms and stage_ms else None,
        "prototype ms": pipeline_ms,
        "its stage ms": stage_ms,
    }


def _context_row(measured: Measured) -> Row:
    return {
        "model": measured.model,
        "whole, one core ms": measured.frame_ms("whole"),
        "two whole copies ms": measured.frame_ms("copies"),
        "pipeline, generated ms": measured.frame_ms("generated"),
        "speed-up over one core": measured.frame_ms("whole") / measured.frame_ms("generated"),
    }


def _cpu_row(measured: Measured, side: str) -> Row:
    loop_us, other_us = measured.cpu_us(side, "loop_cpu_s"), measured.cpu_us(side, "other_cpu_s")
    return {
        "model": measured.model,
        "frames": side,
        "ms": measured.frame_ms(side),
        "/ alone": measured.over_alone(side),
        "daemon µs": (loop_us or 0) + (other_us or 0),
        "of it loop µs": loop_us,
        "I/O threads µs": other_us,
        "client µs": measured.cpu_us(side, "client_cpu_s"),
    }


def report(results: Sequence[Measured], about: Mapping[str, str]) -> None:
    """Tables to the terminal, everything to `results/transport.csv`, a figure beside it."""
    show(
        "Pipeline of two stages, per frame",
        [_pipeline_row(measured) for measured in results],
        ["The prototype's figures are of another machine: compare the ratios."],
    )
    show(
        "Daemon and client, CPU time per frame",
        [_cpu_row(m, side) for m in results for side in ("generated", "copied", "tcp", "ipc")],
    )
    show("For comparison", [_context_row(measured) for measured in results])
    rows = [measured.row(side) for measured in results for side in measured.rounds[0]]
    print(f"written to {save_csv('transport', rows, about)}")
    sides = ("both busy", "generated", "copied", "tcp", "ipc")
    ratios = {m.model: {side: m.over_alone(side) for side in sides} for m in results}
    prototypes = {model: pipeline_ms / stage_ms for model, (pipeline_ms, stage_ms) in PROTOTYPE.items()}
    print(f"written to {save_figure('transport', transport_figure(ratios, prototypes), about)}")


def transport(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file, or this-machine; its first two places are used.")] = (
        "this-machine"
    ),
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of one side in one round.")] = 0.8,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; figures are their medians.")] = 5,
    in_flight: Annotated[int, typer.Option(min=1, help="Frames that the client keeps in flight.")] = IN_FLIGHT,
) -> None:
    """The pipeline over its own slowest stage, then through gateway and client."""
    places = two_places(machine)
    about = facts(
        f"transport --models {models} --machine {machine} --seconds {seconds:g} --rounds {rounds} "
        f"--in-flight {in_flight}"
    )
    results = []
    for model in models.split(","):
        print(f"transport: {model} ...", flush=True)
        results.append(measure(model, places, seconds, rounds, in_flight))
    report(results, about)


if __name__ == "__main__":
    typer.run(transport)
