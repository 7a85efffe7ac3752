"""How soon a disturbed daemon recovers, live: `python -m benchmarks drift_live`.

The part `recovery` of `disturbance`, for each tuning strategy of a live daemon: a place three times slower, then as
before (the daemon is told); a busy process on its core, then none (it has to notice). `before`: the plan that was live
when the change came, which would serve without tuning. Places are emulated. Everything is done once, so differences of
a few percent between two strategies are not significant.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from benchmarks.live.disturbance import MACHINE, MODEL, QUICK, busy, recovery
from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.tuned import Case, tuned
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.planner.strategies import LIVE

_TOLD: Final = ("what", "strategy", "before fps", "tuned fps", "best fps", "within 5% after s", "trials")


def drift_live(
    machine: Annotated[str, typer.Option(help="An emulated machine: a file or a shipped name.")] = MACHINE,
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = MODEL,
) -> None:
    """A place slowed and a core loaded while frames flow, for each way to tune: minutes."""
    about = facts(f"drift_live --machine {machine} --model {model}") | {
        "emulated": "all places: real computation, then a wait",
    }
    case = Case.of(model, load_machine(machine))
    fastest = case.machine.places[0]
    rows: list[Row] = []
    for strategy in LIVE:
        print(f"drift_live: {strategy} ...", flush=True)
        with busy(fastest.cores[0]) as process, tuned(case, strategy) as one:
            found = recovery(one, case, QUICK, fastest.name, process)
            process.end()
            tally = one.load.stop()
        if not tally.clean:
            raise RuntimeError(f"not every frame was answered as it should be: {tally}")
        rows += [{"strategy": strategy, **row} for row in found]
    show("A disturbed daemon", [{key: row[key] for key in _TOLD} for row in rows])
    print(f"written to {save_csv('drift_live', rows, about)}")


if __name__ == "__main__":
    typer.run(drift_live)
