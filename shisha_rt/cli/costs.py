"""`shisha-rt costs`: the measured time of each layer on each place."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shisha_rt.cli.layers import share_bar, short
from shisha_rt.cli.options import Dims, Json, Layers, MachineFile, Model, Shapes, parse_sizes, takes
from shisha_rt.cli.progress import progress
from shisha_rt.errors import BadInput

if TYPE_CHECKING:
    from shisha_rt.costs.costs import Costs
    from shisha_rt.machine.machine import Machine
    from shisha_rt.measure.model_on_machine import ModelOnMachine

_OPERATIONS_PER_MAC: Final = 2


@dataclass(frozen=True, slots=True)
class CostsOptions:
    model: Model
    machine: MachineFile = "this-machine"
    kind: Layers = "heavy"
    dim: Dims = None
    shape: Shapes = None
    teams: Annotated[
        bool, typer.Option("--teams", help="Also several alike places together, with as many threads.")
    ] = False
    batches: Annotated[bool, typer.Option("--batches", help="Also runs of four frames, and of eight.")] = False
    as_json: Json = False


@takes(CostsOptions)
def costs(options: CostsOptions) -> None:
    """List what each layer of MODEL takes on each place.

    What is not known yet is measured on this host first: some seconds, once for each kind of core and number
    of threads. A place's speed, its memory's bandwidth and the time scale are then applied. With --json the
    result is a COSTS.json, which plan --costs reads.

    \b
    Examples:
      shisha-rt costs zoo:squeezenet
      shisha-rt costs zoo:resnet50 --machine demo --json > COSTS.json
      shisha-rt costs zoo:resnet50 --teams
      shisha-rt costs zoo:alexnet --batches
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.costs.costs_file import costs_object
    from shisha_rt.costs.profiles import DISTURBED
    from shisha_rt.costs.split_costs import SplitCosts
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.measure.costs_of_model import layer_costs
    from shisha_rt.measure.make_ready import make_ready
    from shisha_rt.measure.profile import MEASURED_BATCHES
    from shisha_rt.model.zoo import resolve_model

    sizes = parse_sizes(options.dim, options.shape)
    places = load_machine(options.machine)
    model = resolve_model(options.model, progress)
    ready = make_ready(model, places, sizes=[sizes], kind=options.kind, teams=options.teams, on_progress=progress)
    if options.batches and ready.operator_costs:
        raise BadInput(f"--batches: {places.source} has devices, whose runs of several frames are not measured")
    measured = layer_costs(ready, progress, MEASURED_BATCHES if options.batches else ())
    costs_known = measured.costs()
    if measured.others_ratio > DISTURBED:
        print(
            f"others had {measured.others_ratio:.0%} of the cores while some of this was measured: it may be too slow; "
            "a daemon with this model measures it again when the host is calm",
            file=sys.stderr,
        )
    if options.as_json:
        costs_known = replace(costs_known, splits=SplitCosts(tuple(ready.rules.splits.values())))
        print(json.dumps(costs_object(costs_known)))
    else:
        _print_table(ready, costs_known)


def _print_table(ready: ModelOnMachine, costs_known: Costs) -> None:
    import numpy as np

    from shisha_rt.costs.alike import kinds_of
    from shisha_rt.model.spans import moved_bytes
    from shisha_rt.show.lines import counted, plain_console, plain_table

    compiled, machine = ready.compiled, ready.machine
    columns = kinds_of(costs_known)
    fastest = min(columns, key=lambda places: costs_known.places[places[0]].rank)[0]
    shown_s = np.nan_to_num(costs_known.time_s[:, fastest])  # what the place cannot run has no share
    title = f"{compiled.model.name} on {machine.name}: {counted(len(compiled.layers), 'layer')}"
    table = plain_table(title, show_footer=True)
    table.add_column("#", justify="right")
    table.add_column("name", "total", overflow="ellipsis", no_wrap=True, min_width=5)
    labels = ["\n".join(_label(machine, place) for place in places) for places in columns]
    of_places = [(label, costs_known.time_s[:, places[0]]) for label, places in zip(labels, columns, strict=True)]
    of_teams = [("\n+".join(team.places), team.time_s) for team in costs_known.teams]
    of_runs = [(f"{batch.frames} a run", batch.time_s[:, fastest]) for batch in costs_known.batches]
    for header, time_s in (*of_places, *of_teams, *of_runs):
        table.add_column(f"{header}\nms", _in_ms(float(time_s.sum())), justify="right", no_wrap=True)
    table.add_column("share", no_wrap=True)
    table.add_column("moved", justify="right", no_wrap=True)
    table.add_column("op/B", justify="right", no_wrap=True)
    for layer in compiled.layers:
        size_bytes = moved_bytes(compiled.model.graph, layer.first_operator, layer.last_operator)
        table.add_row(
            str(layer.index),
            layer.name,
            *(_in_ms(float(time_s[layer.index])) for _, time_s in (*of_places, *of_teams, *of_runs)),
            share_bar(float(shown_s[layer.index]), float(shown_s.sum()), float(shown_s.max())),
            short(size_bytes, "B"),
            f"{_OPERATIONS_PER_MAC * layer.macs / size_bytes:.3g}" if size_bytes else "",
        )
    console = plain_console()
    console.print(table)
    for line in _notes(ready):
        console.print(line)


def _in_ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e3:.4g}"


def _label(machine: Machine, place: int) -> str:
    costed_place = machine.places[place]
    return f"{costed_place.name}*" if machine.is_emulated(costed_place) else costed_place.name


def _notes(ready: ModelOnMachine) -> Sequence[str]:
    from shisha_rt.model.spans import groups_of

    groups = groups_of(len(ready.compiled.layers), ready.compiled.legal_cuts)
    joined = [f"{first}-{last}" for first, last in groups if first < last]
    notes = []
    if ready.machine.emulated:
        notes.append("* emulated: measured on this host at full speed, then slowed as the machine file says")
    if joined:
        notes.append(f"measured together and divided by weight, as the engine cannot part them: {', '.join(joined)}")
    if ready.operator_costs:
        notes.append("with each layer's operators on the devices of its place that are best for stages of its length")
    return notes
