"""Two engines on one core, each alone and placed together: `python -m benchmarks engines`.

One unthrottled place whose devices are ONNX Runtime on one thread and OpenVINO in fp32. A network is one stage of the
product's own worker, loaded three times: all on one engine, all on the other, and as `exact` places it over both by
profiled costs (on one of them, unless both together are predicted to be more than 3% faster). The three take turns in
every round; times are medians over the rounds, with quartiles.

- `better / placement`: the better engine's time over the placement's, from ratios within rounds. `it is`: a `gain` if
  the lower quartile is above 1, a `loss` if the upper one is below, else `within noise`. A placement on one engine only
  runs the same as that engine's own side, so a ratio above 1 is `noise`; `itself / placement` states its size.
- `segments`: the sessions of the placement.
- `predicted ms`: the placement's time by the costs, `transfers ms` of it for tensors that change engines; `error %`:
  measured against predicted time.
- `node runs`, `edge runs`: the runs of Algorithm 1 of the DCG papers (theirs: 3 and 1, with three devices). `cold s`:
  time of profiling when nothing is known, with starting processes and building sessions; `warm s`: on a second start.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row, Spread
from benchmarks.rigs.one_place import by_order, on_one_place, one_core
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.machine import Machine
from shisha_rt.model.zoo import SHIPPED, zoo_path
from shisha_rt.placement.segments import segments
from shisha_rt.placement.stage_placement import StagePlacement
from shisha_rt.placement.stage_problem import place_stage

MODELS: Final = ",".join(SHIPPED)
QUICK_MODELS: Final = "squeezenet"
PLACEMENT: Final = "placement"
NOISE: Final = 0.02
GAIN: Final = 1.05
GAINERS: Final = 2

_SLOTS: Final = 2
_GLANCE_S: Final = 0.1

Round = Mapping[str, float]
"""Service seconds by side: an engine's name, or `PLACEMENT`."""


FULL: Final = 9, 0.5
"""Rounds, and seconds for each side in each."""
QUICK: Final = 5, 0.2


@dataclass(frozen=True, slots=True)
class Gain:
    """The better engine's time over the placement's, by round, as a slow moment of the host affects both sides of it.

    `itself`: the same for the engine on which the whole placement is, whose deviation from 1 is noise; None: the
    placement mixes engines.
    """

    ratio: Spread
    itself: Spread | None

    @property
    def verdict(self) -> str:
        if self.ratio.high < 1:
            return "loss"
        if self.itself is not None:
            return "noise"
        return "gain" if self.ratio.low > 1 else "within noise"


def measured(model: str, machine: Machine, count: int, seconds: float) -> tuple[Row, Gain]:
    """Profile, place, and run the three sides in turns."""
    network = on_one_place(zoo_path(model, print), machine, {}, precision="exact")
    profile, cold_s, warm_s = network.profile_twice()
    costs = profile.costs
    placement = place_stage(network.graph, 0, len(network.graph.operators) - 1, costs)
    # Operators that an engine cannot run go to the other one, as a user of that engine would have it.
    sides = {device.name: by_order(costs, (i, 1 - i)) for i, device in enumerate(costs.devices)}
    with network.rig(_SLOTS) as rig:
        stages = {side: network.load(rig, devices) for side, devices in {**sides, PLACEMENT: placement.devices}.items()}
        expected_s = {side: rig.alone(stage, _GLANCE_S).service_s for side, stage in stages.items()}
        rounds = [
            {side: rig.saturate([stage], [expected_s[side]], seconds)[0].service_s for side, stage in stages.items()}
            for _ in range(count)
        ]
    outcome, predicted_ms = gain(rounds, placement.devices), 1e3 * placement.cost_s
    row = {
        "model": model,
        **{f"{side} ms": _ms(rounds, side) for side in rounds[0]},
        "better / placement": outcome.ratio,
        "it is": outcome.verdict,
        "itself / placement": outcome.itself,
        "segments": len(segments(network.graph, 0, placement.devices)),
        "predicted ms": predicted_ms,
        "transfers ms": 1e3 * transfers_s(costs, placement),
        "error %": 100 * (_ms(rounds, PLACEMENT).median / predicted_ms - 1),
        "outcome": str(placement.outcome),
        "node runs": profile.node_runs,
        "edge runs": profile.edge_runs,
        "cold s": cold_s,
        "warm s": warm_s,
    }
    return row, outcome


def gain(rounds: Sequence[Round], devices: Sequence[str]) -> Gain:
    """`devices` (operators,): the placement. The better engine is the one that is better over all rounds."""
    better = min((side for side in rounds[0] if side != PLACEMENT), key=lambda side: _ms(rounds, side).median)
    sole = devices[0] if len(set(devices)) == 1 else None
    return Gain(_over_placement(rounds, better), None if sole is None else _over_placement(rounds, sole))


def _over_placement(rounds: Sequence[Round], side: str) -> Spread:
    return Spread.of(times_s[side] / times_s[PLACEMENT] for times_s in rounds)


def _ms(rounds: Sequence[Round], side: str) -> Spread:
    return Spread.of(1e3 * times_s[side] for times_s in rounds)


def transfers_s(costs: OperatorCosts, placement: StagePlacement) -> float:
    """A placement's cost without that of its operators."""
    column = {device.name: index for index, device in enumerate(costs.devices)}
    operators_s = sum(times_s[column[name]] for times_s, name in zip(costs.time_s, placement.devices, strict=True))
    return placement.cost_s - float(operators_s)


def verdicts(gains: Sequence[Gain]) -> list[str]:
    """Whether the aims are met by placements that mix engines. `gains` (networks,)."""
    mixed = [outcome for outcome in gains if outcome.itself is None]
    not_slower = sum(outcome.ratio.median >= 1 - NOISE for outcome in mixed)
    faster = sum(outcome.ratio.median >= GAIN and outcome.verdict == "gain" for outcome in mixed)
    lines = [
        f"placements that mix engines: {len(mixed)} of {len(gains)}",
        f"of these never slower than the better engine, {NOISE:.0%} noise: {not_slower} (aim: all)",
        f"of these at least {GAIN:g} times as fast: {faster} (aim: {GAINERS})",
    ]
    off = [abs(outcome.itself.median - 1) for outcome in gains if outcome.itself is not None]
    return [*lines, f"the others, an engine against itself: up to {max(off):.1%} off, which is noise"] if off else lines


def engines(
    models: Annotated[
        str | None, typer.Option(help="Networks of the zoo, separated by commas. Default: the CNNs of ONNX.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"Shorter rounds; by default {QUICK_MODELS} only.")] = False,
) -> None:
    """ONNX Runtime alone, OpenVINO alone, and the exact placement over both, on one core."""
    machine = one_core()
    chosen = models or (QUICK_MODELS if quick else MODELS)
    report = Report("engines", {"openvino": importlib.metadata.version("openvino")}, quick=quick)
    gains: list[Gain] = []
    rows: list[Row] = []
    for model in chosen.split(","):
        report.step(model)
        row, outcome = measured(model, machine, *(QUICK if quick else FULL))
        rows.append(row)
        gains.append(outcome)
        report.save(rows)
    report.show("Two engines on one core, and the exact placement over both", rows, verdicts(gains))
