"""Copies allowed, copies forbidden, and two plain copies of the engine: `python -m benchmarks copies`.

Two unthrottled cores with a place each. The daemon tunes itself with `guided`, once with copies and teams allowed and
once with chains only; frames are generated inside the daemon, so that plans are compared and not sockets. The rival is
a session of ONNX Runtime on each core, without a daemon. All sides take turns in each round; ratios are within rounds.
All figures are medians over the rounds, with their quartiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, Spread, save_csv, show
from benchmarks.rigs.sides import Round, rounds, sides
from shisha_rt.machine.config.machine_file import check_runnable, load_machine

MODELS: Final = "squeezenet,shufflenet,inception_v1,densenet121,resnet50,alexnet"
DAEMONS: Final[Mapping[str, Mapping[str, Any]]] = {"free": {"replicate": True}, "chains": {"replicate": False}}
RIVAL: Final = "ort_copies"


def copies(
    models: Annotated[str, typer.Option(help="Zoo networks, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="A machine file or shipped name.")] = "this-machine",
    seconds: Annotated[float, typer.Option(help="For each side in each round.")] = 1.5,
    count: Annotated[int, typer.Option("--rounds", help="Rounds.")] = 7,
) -> None:
    """What copies bring on equal cores, against chains and against plain copies of the engine."""
    described = load_machine(machine)
    check_runnable(described)
    about = facts(f"copies --models {models} --machine {machine} --seconds {seconds:g} --rounds {count}")
    rows: list[Row] = []
    for model in models.split(","):
        print(f"copies: {model} ...", flush=True)
        with sides(model, described, DAEMONS, [RIVAL], {"copied": True}) as all_sides:
            rows.append(_row(model, rounds(all_sides, count, seconds)))
        save_csv("copies", rows, about)  # after each network, so that results are kept if a later one fails
    notes = [
        "rival / free: above 1 the daemon, free to use copies, is faster than a plain session on each core",
        "medians over the rounds, and their quartiles",
    ]
    show(f"copies, {machine}, ms per frame at saturation", rows, notes)


def _row(model: str, found: Sequence[Round]) -> Row:
    return {
        "model": model,
        "free_ms": _ms(found, "free"),
        "chains_ms": _ms(found, "chains"),
        "rival_ms": _ms(found, RIVAL),
        "rival / free": Spread.of(its[RIVAL]["frame_s"] / its["free"]["frame_s"] for its in found),
        "chains / free": Spread.of(its["chains"]["frame_s"] / its["free"]["frame_s"] for its in found),
        "plan found": found[-1]["free"]["plan"],
        "chain found": found[-1]["chains"]["plan"],
    }


def _ms(found: Sequence[Round], side: str) -> Spread:
    return Spread.of(1e3 * its[side]["frame_s"] for its in found)
