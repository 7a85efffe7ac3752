"""A trained network, the zoo's text detector, against plain copies of the engine: `python -m benchmarks detector`.

Two unthrottled cores with a place each. The daemon tunes itself; then its frames come in turns from inside it and from
a client in another process, over a socket. The rivals are ONNX Runtime without a daemon, a session on each core and one
session on all cores, whose frames are in memory. All sides take turns in each round; ratios are within rounds. All
figures are medians over the rounds, with their quartiles.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, Spread, save_csv, show
from benchmarks.rigs.sides import rounds, sides
from shisha_rt.machine.config.machine_file import check_runnable, load_machine

MODEL: Final = "text_detector"
_COPIES: Final = "ort_copies"
_SIDES: Final = ("daemon", "daemon_client", _COPIES, "ort_threads")


def detector(
    machine: Annotated[str, typer.Option(help="A machine file or shipped name.")] = "this-machine",
    seconds: Annotated[float, typer.Option(help="For each side in each round.")] = 1.5,
    count: Annotated[int, typer.Option("--rounds", help="Rounds.")] = 9,
) -> None:
    """The text detector (trained) through the daemon, against plain copies of the engine."""
    described = load_machine(machine)
    check_runnable(described)
    about = facts(f"detector --machine {machine} --seconds {seconds:g} --rounds {count}")
    with sides(MODEL, described, {"daemon": {}}, [_COPIES, "ort_threads"], {"copied": True}, clients=True) as all_sides:
        found = rounds(all_sides, count, seconds)
    row: Row = {
        "model": MODEL,
        **{f"{side}_ms": Spread.of(1e3 * its[side]["frame_s"] for its in found) for side in _SIDES},
        **{
            f"copies / {side}": Spread.of(its[_COPIES]["frame_s"] / its[side]["frame_s"] for its in found)
            for side in _SIDES[:2]
        },
        "plan found": found[-1]["daemon"]["plan"],
    }
    save_csv("detector", [row], about)
    notes = [
        "copies / daemon: above 1 the daemon is faster than a plain session on each core",
        "medians over the rounds, and their quartiles",
    ]
    show(f"the text detector, 320x320, {machine}, ms per frame at saturation", [row], notes)
