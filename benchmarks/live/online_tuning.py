"""How good live tuning is, how soon, and how far its measurements can be trusted: `python -m benchmarks online_tuning`.

Everything is live: a real daemon with its tuner, and a client that sends frames without a pause and checks each
answer. Places are emulated. Three parts:

- `tuning`: from the seed to the end of Algorithm 2's walk (H3). Then four plans take turns in several rounds under
  the same load: the seed, the plan that tuning kept, the best plan with the seed's assignment of places, and the best
  of all. The last two come from dynamic programming over stored costs, so they are the best by costs; if the costs are
  wrong, the tuned plan may be better. Throughputs are answers per second of wall time at saturation, ratios are medians
  of ratios within rounds. `kept worse`: how many plans the walk judged better than its best so far that are worse by
  stored costs.
- `prediction`, for the first model and machine: random plans, each run live: the slowest stage by stored costs against
  the median measured service time of the slowest stage, with timing `measured` and `modelled`.
- `noise`, for the same: the tuned plan and the seed take turns, each time as a new epoch, and the tuned plan is
  measured as in a trial. Reported is how many pairs of its measurements differ by more than their stated band.

A stage's service time is by the emulation's clock; other work on this host's cores affects `measured`.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Annotated, Final

import typer

from benchmarks.report.facts import facts
from benchmarks.report.figures import online_tuning_figure
from benchmarks.report.results import Row, save_csv, save_figure, show
from benchmarks.rigs.one_place import fresh_cache
from benchmarks.rigs.steady_load import Tally
from benchmarks.rigs.tuned import Case, Observed, Refused, Tuned, Tuning, plan_of, tuned, variant
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

MACHINES: Final = "demo,c1,c2,c3,c4,c5,c6"
MODELS: Final = "squeezenet,resnet50,inception_v1"
_QUICK_MACHINES: Final = "demo,c1,c3"
_QUICK_MODELS: Final = "squeezenet"
_TUNING_TIMEOUT_S: Final = 120.0
_AIM_TUNED: Final = 0.97
_AIM_ERROR: Final = 0.05
_TIMINGS: Final = ("measured", "modelled")


@dataclass(frozen=True, slots=True)
class Effort:
    """Extent of measurements: `seconds` for each plan in each of `rounds`."""

    rounds: int
    seconds: float
    plans: int
    repeats: int


_FULL: Final = Effort(rounds=3, seconds=2.0, plans=30, repeats=20)
_QUICK: Final = Effort(rounds=3, seconds=1.0, plans=10, repeats=10)


def tune(one: Tuned, case: Case, effort: Effort) -> Row:
    """Wait for the end of the walk, then compare plans."""
    found = one.tuning(0, _TUNING_TIMEOUT_S)
    if found is None:
        raise RuntimeError(f"the tuner does not begin on {case.machine.name}")
    answered = sum(found.began_s <= at_s <= found.ended_s for at_s, _ in one.load.answers)
    optimum = case.optimum()
    seed, kept = plan_of(found.trials[0]["plan"]), plan_of(found.plan)
    plans = {
        "seed": seed,
        "tuned": kept,
        "best in order": optimum.best_in_order(seed.places),
        "best of all": optimum.best_of_all(),
    }
    rounds = [_round(one, plans, effort.seconds) for _ in range(effort.rounds)]

    def fps(side: str) -> float:
        return statistics.median(each[side].wall_fps for each in rounds)

    def ratio(side: str) -> float:
        return statistics.median(each["tuned"].wall_fps / each[side].wall_fps for each in rounds)

    def slowest_ms(side: str) -> float:
        return 1e3 * statistics.median(each[side].measurement.bottleneck_s for each in rounds)

    better, worse = _gains(found, optimum.bottleneck_s)
    row: Row = {
        "model": case.model,
        "machine": case.machine.name,
        "emulated": "yes" if case.machine.emulated else "no",
        "seed fps": fps("seed"),
        "tuned fps": fps("tuned"),
        "best in order fps": fps("best in order"),
        "best of all fps": fps("best of all"),
        "tuned / seed": ratio("seed"),
        "tuned / best in order": ratio("best in order"),
        "tuned / best of all": ratio("best of all"),
        "model: tuned / best in order": optimum.bottleneck_s(plans["best in order"]) / optimum.bottleneck_s(kept),
        "slowest ms, tuned": slowest_ms("tuned"),
        "slowest ms, best in order": slowest_ms("best in order"),
        "trials": len(found.trials),
        "taken for better": better,
        "kept worse": worse,
        "seconds": found.ended_s - found.began_s,
        "frames meanwhile": answered,
        "ended as": found.reason,
        "seed": str(seed),
        "tuned": str(kept),
        "best in order": str(plans["best in order"]),
        "best of all": str(plans["best of all"]),
    }
    return row


def _round(one: Tuned, plans: Mapping[str, Plan], seconds: float) -> Mapping[str, Observed]:
    """Run each plan once; equal plans are run once for both."""
    seen: dict[Plan, Observed] = {}
    for plan in plans.values():
        if plan not in seen:
            seen[plan] = one.observe(plan, seconds)
    return {side: seen[plan] for side, plan in plans.items()}


def _gains(found: Tuning, bottleneck_s: Callable[[Plan], float]) -> tuple[int, int]:
    """How many plans were judged better than the best before, and how many of them are worse by stored costs."""
    best_s = bottleneck_s(plan_of(found.trials[0]["plan"]))
    better = worse = 0
    for trial in found.trials:
        if trial["verdict"] == "better":
            now_s = bottleneck_s(plan_of(trial["plan"]))
            better += 1
            worse += now_s > best_s
            best_s = now_s
    return better, worse


def noise(one: Tuned, case: Case, seed: Plan, kept: Plan, repeats: int) -> Row:
    found: list[Measurement] = []
    for _ in range(repeats):
        one.take(seed)
        one.take(kept)
        found.append(one.measure())
    pairs = list(combinations(found, 2))
    times_s = [m.bottleneck_s for m in found]
    return {
        "model": case.model,
        "machine": case.machine.name,
        "emulated": "yes" if case.machine.emulated else "no",
        "timing": case.machine.timing,
        "measurements": len(found),
        "median band %": 100 * statistics.median(m.band for m in found),
        "spread %": 100 * (max(times_s) / min(times_s) - 1),
        "median frames": statistics.median(m.frames for m in found),
        "pairs": len(pairs),
        "beyond the band %": 100 * sum(not a.agrees_with(b) for a, b in pairs) / len(pairs),
        "aim %": 5,
    }


def prediction(case: Case, count: int) -> list[Row]:
    """Random plans on the machine with each timing. Plans that this host is too busy to emulate are left out.

    Layers are measured again, as the speed of a host with other work changes over time.
    """
    with fresh_cache():
        return _predicted(Case.of(case.model, case.machine), count)


def _predicted(case: Case, count: int) -> list[Row]:
    rows: list[Row] = []
    generator = random.Random(f"{case.model} on {case.machine.name}")
    optimum = case.optimum()
    plans = [optimum.random_plan(generator) for _ in range(count)]
    for timing in _TIMINGS:
        with variant(case.machine, timing) as machine, tuned(Case.of(case.model, machine)) as one:
            for plan in plans:
                try:
                    one.take(plan)
                except Refused as refusal:
                    print(f"online_tuning: left out: {refusal}", flush=True)
                    continue
                found = one.measure()
                predicted_s = optimum.bottleneck_s(plan)
                rows.append(
                    {
                        "model": case.model,
                        "machine": case.machine.name,
                        "timing": timing,
                        "predicted ms": 1e3 * predicted_s,
                        "measured ms": 1e3 * found.bottleneck_s,
                        "error %": 100 * (found.bottleneck_s / predicted_s - 1),
                        "band %": 100 * found.band,
                        "plan": str(plan),
                    }
                )
            _clean(one.load.stop())
    return rows


def _clean(tally: Tally) -> Tally:
    """Raises `RuntimeError` unless every frame was answered once, in order and correctly."""
    if not tally.clean:
        raise RuntimeError(f"not every frame was answered as it should be: {tally}")
    return tally


def _errors(rows: Sequence[Row], timing: str) -> list[float]:
    return [abs(float(str(row["error %"]))) for row in rows if row["timing"] == timing]


def _summary(rows: Sequence[Row]) -> list[Row]:
    """Summary of predictions for each machine, model and timing."""
    groups = dict.fromkeys((row["model"], row["machine"]) for row in rows)
    found: list[Row] = []
    for model, machine in groups:
        own = [row for row in rows if (row["model"], row["machine"]) == (model, machine)]
        for timing in _TIMINGS:
            errors = _errors(own, timing)
            found.append(
                {
                    "model": model,
                    "machine": machine,
                    "timing": timing,
                    "plans": len(errors),
                    "median |error| %": statistics.median(errors),
                    "largest |error| %": max(errors),
                    "within 5%": sum(error <= 100 * _AIM_ERROR for error in errors),
                    "aim": "each within 5%" if timing == "modelled" else "median within 5%",
                }
            )
    return found


_PLAN_KEYS: Final = ("ended as", "seed", "tuned", "best in order", "best of all")


def online_tuning(
    machines: Annotated[str, typer.Option(help="Machine files or shipped names, separated by commas.")] = "",
    models: Annotated[str, typer.Option(help="Networks of the zoo, separated by commas.")] = "",
    quick: Annotated[bool, typer.Option(help="A few minutes: fewer machines, models, plans and rounds.")] = False,
) -> None:
    """Live tuning against the best plans that stored costs allow; predictions; noise."""
    effort = _QUICK if quick else _FULL
    machines = machines or (_QUICK_MACHINES if quick else MACHINES)
    models = models or (_QUICK_MODELS if quick else MODELS)
    flag = " --quick" if quick else ""
    about = facts(f"online_tuning --machines {machines} --models {models}{flag}") | {
        "emulated": "all places: real computation, then a wait",
    }
    tunings: list[Row] = []
    for model, name in product(models.split(","), machines.split(",")):
        print(f"online_tuning: {model} on {name} ...", flush=True)
        case = Case.of(model, load_machine(name))
        with tuned(case) as one:
            row = tune(one, case, effort)
            tally = _clean(one.load.stop())
        tunings.append({**row, "frames in all": tally.answered, "lost": tally.lost})
        save_csv("online_tuning", tunings, about)  # after each, as all of them take an hour
    case = Case.of(models.split(",")[0], load_machine(machines.split(",")[0]))
    print(f"online_tuning: {case.model} on {case.machine.name}, predictions and noise ...", flush=True)
    predictions = prediction(case, effort.plans)
    with tuned(case) as one:
        first = plan_of(str(tunings[0]["seed"])), plan_of(str(tunings[0]["tuned"]))
        noises = [noise(one, case, *first, effort.repeats)]
        _clean(one.load.stop())
    short = [{key: value for key, value in row.items() if key not in _PLAN_KEYS} for row in tunings]
    show("Live tuning on emulated places", short, [f"aim: tuned / best in order at least {_AIM_TUNED}"])
    show("Predicted against measured slowest stage, random plans", _summary(predictions))
    show("One plan measured again and again", noises)
    for what, rows in (("", tunings), ("_prediction", predictions), ("_noise", noises)):
        print(f"written to {save_csv(f'online_tuning{what}', rows, about)}")
    figure = online_tuning_figure(tunings, predictions, _AIM_TUNED, _AIM_ERROR)
    print(f"written to {save_figure('online_tuning', figure, about)}")


if __name__ == "__main__":
    typer.run(online_tuning)
