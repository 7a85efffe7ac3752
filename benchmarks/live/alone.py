"""One frame at a time: the daemon planned for latency, a chain, and engines on all cores: `python -m benchmarks alone`.

Places with two engines on two unthrottled cores. The next frame is sent when the last has been answered, from inside
the daemon: what is compared is how the network is run. Rivals are ONNX Runtime and OpenVINO (fp32) with a thread for
each core. All sides take turns in each round; ratios are the medians of the rounds' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated, Any, Final

import typer

from benchmarks.live.copies import MODELS
from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.engine_process import ALONE
from benchmarks.rigs.sides import Round, rounds, sides
from shisha_rt.machine.config.machine_file import check_runnable, load_machine

DAEMONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "latency": {"replicate": True, "objective": "latency"},
    "chain": {"replicate": False},
}


def alone(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file or shipped name.")] = "two-engines",
    seconds: Annotated[float, typer.Option(help="For each side in each round.")] = 1.5,
    count: Annotated[int, typer.Option("--rounds", help="Rounds.")] = 7,
) -> None:
    """How long one frame takes by itself, against engines with a thread for each core."""
    described = load_machine(machine)
    check_runnable(described)
    rows: list[Row] = []
    for model in models.split(","):
        order = {"copied": True, "in_flight": 1}
        with sides(model, described, DAEMONS, list(ALONE), order) as all_sides:
            rows.append(_row(model, rounds(all_sides, count, seconds)))
        print(rows[-1])
        save_csv("alone", rows, facts() | {"machine": machine, "rounds": str(count), "seconds": f"{seconds:g}"})
    notes = ["latency / best engine: at most 1.1 and 0.3 ms is the aim", "ms: medians of the rounds"]
    show(f"one frame at a time, {machine}", rows, notes)


def _row(model: str, found: Sequence[Round]) -> Row:
    best = min(ALONE, key=lambda rival: _ms(found, rival))
    return {
        "model": model,
        **{f"{side}_ms": _ms(found, side) for side in (*DAEMONS, *ALONE)},
        "latency / best engine": median(its["latency"]["frame_s"] / its[best]["frame_s"] for its in found),
        "over_ms": 1e3 * median(its["latency"]["frame_s"] - its[best]["frame_s"] for its in found),
        "chain / latency": median(its["chain"]["frame_s"] / its["latency"]["frame_s"] for its in found),
        "plan": found[-1]["latency"]["plan"],
    }


def _ms(found: Sequence[Round], side: str) -> float:
    frames_s: list[float] = [its[side]["frame_s"] for its in found]
    return 1e3 * median(frames_s)
