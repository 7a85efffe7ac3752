"""One frame at a time: the daemon planned for latency, a chain, and engines on all cores: `python -m benchmarks alone`.

Places with two engines on two unthrottled cores. The next frame is sent when the last has been answered, from inside
the daemon: what is compared is how the network is run. Rivals are ONNX Runtime and OpenVINO (fp32) with a thread for
each core. All sides take turns in each round; ratios are of the rounds' own. All figures are medians over the rounds,
with their quartiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from benchmarks.live.copies import MODELS
from benchmarks.report.facts import facts
from benchmarks.report.results import Row, Spread, save_csv, show
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
    about = facts(f"alone --models {models} --machine {machine} --seconds {seconds:g} --rounds {count}")
    rows: list[Row] = []
    for model in models.split(","):
        print(f"alone: {model} ...", flush=True)
        order = {"copied": True, "in_flight": 1}
        with sides(model, described, DAEMONS, list(ALONE), order) as all_sides:
            rows.append(_row(model, rounds(all_sides, count, seconds)))
        save_csv("alone", rows, about)  # each time, so that what is there stays whatever becomes of the next
    notes = ["latency / best engine: at most 1.1 and 0.3 ms is the aim", "medians over the rounds, and their quartiles"]
    show(f"one frame at a time, {machine}", rows, notes)


def _row(model: str, found: Sequence[Round]) -> Row:
    best = min(ALONE, key=lambda rival: _ms(found, rival).median)
    return {
        "model": model,
        **{f"{side}_ms": _ms(found, side) for side in (*DAEMONS, *ALONE)},
        "best engine": best,
        "latency / best engine": Spread.of(its["latency"]["frame_s"] / its[best]["frame_s"] for its in found),
        "over_ms": Spread.of(1e3 * (its["latency"]["frame_s"] - its[best]["frame_s"]) for its in found),
        "chain / latency": Spread.of(its["chain"]["frame_s"] / its["latency"]["frame_s"] for its in found),
        "plan": found[-1]["latency"]["plan"],
    }


def _ms(found: Sequence[Round], side: str) -> Spread:
    return Spread.of(1e3 * its[side]["frame_s"] for its in found)
