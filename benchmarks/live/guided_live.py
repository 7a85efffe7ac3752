"""Exact plans for corrected costs against Shisha's walk, live: `python -m benchmarks guided_live`.

The two strategies take turns, each time with a new daemon that knows only stored costs of earlier runs, under a client
that sends frames without a pause and checks each answer. After a search, its plan and the best of all plans take turns
under the same load. The best of all comes from dynamic programming over stored costs, checked by enumeration if that is
feasible; if the costs are wrong, the plan of a search may be better. Throughputs are answers per second of wall time at
saturation.

`guided` begins with the best plan by stored costs, `shisha` with its seed; the first trial is of that plan. Places are
emulated.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from benchmarks.rigs.tuned import Case, plan_of, tuned
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.planner.strategies import LIVE

MACHINE: Final = "demo"
MODELS: Final = "squeezenet,resnet50,inception_v1"
_TIMEOUT_S: Final = 180.0
_ROUNDS: Final = 2
_SECONDS: Final = 1.5
_AIM: Final = "aim for guided: within 2% of the best of all in at most 4 trials"


def one_run(case: Case, strategy: str) -> Row:
    """Run a search in a new daemon, then compare its plan with the best of all."""
    with tuned(case, strategy) as one:
        found = one.tuning(0, _TIMEOUT_S)
        if found is None:
            raise RuntimeError(f"the tuner does not begin on {case.machine.name}")
        plans = {"found": plan_of(found.plan), "best": case.optimum().best_of_all()}
        same = plans["found"] == plans["best"]
        rounds = [{side: one.observe(plan, _SECONDS).wall_fps for side, plan in plans.items()} for _ in range(_ROUNDS)]
        tally = one.load.stop()
    if not tally.clean:
        raise RuntimeError(f"not every frame was answered as it should be: {tally}")
    return {
        "model": case.model,
        "machine": case.machine.name,
        "emulated": "yes" if case.machine.emulated else "no",
        "strategy": strategy,
        "trials": len(found.trials),
        "trials to the plan kept": 1 + [trial["plan"] for trial in found.trials].index(found.plan),
        "seconds": found.ended_s - found.began_s,
        "fps": statistics.median(each["found"] for each in rounds),
        "best of all fps": statistics.median(each["best"] for each in rounds),
        "found / best of all": statistics.median(each["found"] / each["best"] for each in rounds),
        "same plan": "yes" if same else "no",
        "frames": tally.answered,
        "lost": tally.lost,
        "plan": str(plans["found"]),
        "plan, best of all": str(plans["best"]),
    }


def _summary(rows: Sequence[Row]) -> list[Row]:
    """Medians over the runs of each model and strategy; `least`: the worst run."""
    found: list[Row] = []
    for model, strategy in dict.fromkeys((row["model"], row["strategy"]) for row in rows):
        own = [row for row in rows if (row["model"], row["strategy"]) == (model, strategy)]

        def median(key: str, own: Sequence[Row] = own) -> float:
            return statistics.median(float(str(row[key])) for row in own)

        found.append(
            {
                "model": model,
                "strategy": strategy,
                "runs": len(own),
                "trials": median("trials"),
                "most": max(int(str(row["trials"])) for row in own),
                "to the plan kept": median("trials to the plan kept"),
                "seconds": median("seconds"),
                "found / best of all": median("found / best of all"),
                "least": min(float(str(row["found / best of all"])) for row in own),
            }
        )
    return found


def guided_live(
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = MODELS,
    machine: Annotated[str, typer.Option(help="An emulated machine: a file or a shipped name.")] = MACHINE,
    runs: Annotated[int, typer.Option(min=1, help="Of each strategy.")] = 4,
) -> None:
    """Guided tuning against Shisha's walk, live, several runs each."""
    about = facts(f"guided_live --models {models} --machine {machine} --runs {runs}") | {
        "emulated": "all places: real computation, then a wait",
    }
    rows: list[Row] = []
    for model in models.split(","):
        case = Case.of(model, load_machine(machine))
        for number in range(runs):
            for strategy in LIVE if number % 2 else reversed(LIVE):
                print(f"guided_live: {model}, run {number + 1} of {runs}, {strategy} ...", flush=True)
                rows.append(one_run(case, strategy))
    show("Guided tuning against Shisha's walk, live on emulated places", _summary(rows), [_AIM])
    print(f"written to {save_csv('guided_live', rows, about)}")


if __name__ == "__main__":
    typer.run(guided_live)
