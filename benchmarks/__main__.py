"""`python -m benchmarks`: all of the short benchmarks, or one by its name."""

from __future__ import annotations

import sys

import typer

from benchmarks.cluster.commands import cluster
from benchmarks.dcg.repeat import dcg
from benchmarks.live.against_engines import against_engines
from benchmarks.live.alone import alone
from benchmarks.live.answers import MACHINE, answers
from benchmarks.live.best_plan import best_plan
from benchmarks.live.branches import branches
from benchmarks.live.busy_start import busy_start
from benchmarks.live.copies import copies
from benchmarks.live.copies_disturbed import copies_disturbed
from benchmarks.live.dashboard import dashboard
from benchmarks.live.detector import detector
from benchmarks.live.device_slowed import device_slowed
from benchmarks.live.disturbance import disturbance
from benchmarks.live.drift_live import drift_live
from benchmarks.live.emulation import MODEL as PACED
from benchmarks.live.emulation import emulation
from benchmarks.live.energy import energy
from benchmarks.live.engines import engines
from benchmarks.live.first_answer import first_answer
from benchmarks.live.goodput import goodput
from benchmarks.live.guided_live import guided_live
from benchmarks.live.hostile import hostile
from benchmarks.live.live_change import MODELS as CHANGED
from benchmarks.live.live_change import live_change
from benchmarks.live.load import load
from benchmarks.live.loadgen import loadgen
from benchmarks.live.loop import loop
from benchmarks.live.loop_cost import loop_cost
from benchmarks.live.many_models import many_models
from benchmarks.live.online_tuning import online_tuning
from benchmarks.live.pim_board import pim_board
from benchmarks.live.placed_prediction import placed_prediction
from benchmarks.live.quotas import quotas
from benchmarks.live.race import race
from benchmarks.live.screenshots import screenshots
from benchmarks.live.several import several
from benchmarks.live.transport import MODELS, transport
from benchmarks.live.walk import walk
from benchmarks.paper.drift import drift
from benchmarks.paper.exact_planner import exact_planner
from benchmarks.paper.guided import guided
from benchmarks.paper.links import links
from benchmarks.paper.order import order
from benchmarks.paper.placement_gap import placement_gap
from benchmarks.paper.scale import scale
from benchmarks.partitiontuner.accuracy import int8_accuracy
from benchmarks.partitiontuner.fit import partitiontuner_fit
from benchmarks.partitiontuner.repeat import partitiontuner
from benchmarks.pictures.draw import pictures
from benchmarks.report.headers import stale
from benchmarks.report.readme import readme
from benchmarks.rigs.served import IN_FLIGHT
from benchmarks.robust.campaign import campaign
from benchmarks.robust.campaign_models import campaign_models
from benchmarks.robust.faults import faults
from benchmarks.robust.fuzz import fuzz
from benchmarks.robust.overload import overload
from benchmarks.robust.rivals import campaign_rivals
from benchmarks.robust.updates import updates
from benchmarks.shisha.bandwidth import bandwidth
from benchmarks.shisha.repeat import shisha
from benchmarks.splits.executed import splits_executed
from benchmarks.splits.fit import splits_fit
from benchmarks.splits.gap import splits_gap
from benchmarks.splits.paper import splits_paper
from shisha_rt.errors import BadInput
from shisha_rt.model.zoo import SHIPPED

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
for command in (
    transport,
    live_change,
    answers,
    emulation,
    online_tuning,
    disturbance,
    drift,
    drift_live,
    placement_gap,
    engines,
    against_engines,
    device_slowed,
    quotas,
    placed_prediction,
    pim_board,
    dcg,
    partitiontuner_fit,
    exact_planner,
    scale,
    links,
    order,
    guided,
    guided_live,
    energy,
    shisha,
    bandwidth,
    walk,
    copies,
    detector,
    alone,
    busy_start,
    best_plan,
    branches,
    copies_disturbed,
    dashboard,
    first_answer,
    load,
    goodput,
    loop,
    loop_cost,
    race,
    hostile,
    fuzz,
    campaign,
    faults,
    campaign_models,
    overload,
    campaign_rivals,
    updates,
    loadgen,
    int8_accuracy,
    partitiontuner,
    splits_fit,
    splits_executed,
    splits_paper,
    splits_gap,
    pictures,
    stale,
    readme,
    screenshots,
    several,
    many_models,
):
    app.command(name=command.__name__)(command)
app.add_typer(cluster, name="cluster")


@app.callback(invoke_without_command=True)
def _all(context: typer.Context) -> None:
    """The short benchmarks: a quarter of an hour of two cores. Tables here; CSV and figures in benchmarks/results."""
    if context.invoked_subcommand is None:
        answers(",".join(SHIPPED), MACHINE, frames=3)
        transport(MODELS, "this-machine", seconds=0.8, rounds=5, in_flight=IN_FLIGHT)
        emulation(PACED, seconds=4.0)
        live_change(CHANGED, "this-machine", pairs=6, pause=0.7, in_flight=IN_FLIGHT)
        placement_gap(quick=True)
        engines(models=None, quick=True)
        placed_prediction(quick=True)
        pim_board(quick=True)
        dcg(quick=True)
        copies("squeezenet", "this-machine", seconds=1.0, count=3)
        exact_planner()
        shisha(quick=True)


if __name__ == "__main__":
    try:
        app()
    except BadInput as error:
        sys.exit(f"benchmarks: {error}")
