"""`python -m benchmarks`: all of the short benchmarks, or one by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

import typer

from benchmarks.cluster.hop import hop
from benchmarks.cluster.kills import kills
from benchmarks.cluster.link_slowed import slow_link
from benchmarks.cluster.serve import serve
from benchmarks.dcg.repeat import dcg
from benchmarks.live.alone import alone
from benchmarks.live.branches import branches
from benchmarks.live.busy_start import busy_start
from benchmarks.live.dashboard import dashboard
from benchmarks.live.drift_live import drift_live
from benchmarks.live.emulation import emulation
from benchmarks.live.energy import energy
from benchmarks.live.engines import engines
from benchmarks.live.first_answer import first_answer
from benchmarks.live.goodput import goodput
from benchmarks.live.live_change import live_change
from benchmarks.live.load import load
from benchmarks.live.loop import loop
from benchmarks.live.many_models import many_models
from benchmarks.live.pim_board import pim_board
from benchmarks.live.race import race
from benchmarks.live.screenshots import screenshots
from benchmarks.live.several import several
from benchmarks.live.walk import walk
from benchmarks.paper.drift import drift
from benchmarks.paper.guided import guided
from benchmarks.paper.links import links
from benchmarks.paper.order import order
from benchmarks.paper.placement_gap import placement_gap
from benchmarks.paper.scale import scale
from benchmarks.partitiontuner.fit import partitiontuner_fit
from benchmarks.partitiontuner.repeat import partitiontuner
from benchmarks.pictures.draw import pictures
from benchmarks.report.headers import stale
from benchmarks.report.readme import readme
from benchmarks.robust.campaign import campaign
from benchmarks.robust.campaign_models import campaign_models
from benchmarks.robust.faults import faults
from benchmarks.robust.fuzz import fuzz
from benchmarks.robust.hostile import hostile
from benchmarks.robust.overload import overload
from benchmarks.robust.rivals import campaign_rivals
from benchmarks.robust.updates import updates
from benchmarks.shisha.bandwidth import bandwidth
from benchmarks.shisha.repeat import shisha
from benchmarks.splits.executed import splits_executed
from benchmarks.splits.gap import splits_gap
from benchmarks.splits.paper import splits_paper
from shisha_rt.errors import BadInput, Failure

COMMANDS: Final[Sequence[Callable[..., None]]] = (
    # The running daemon.
    *(alone, branches, busy_start, drift_live, emulation, energy, engines, first_answer, goodput, live_change, load),
    *(loop, many_models, pim_board, race, several),
    # Papers repeated, and planners on paper.
    *(bandwidth, dcg, partitiontuner, partitiontuner_fit, shisha, splits_executed, splits_gap, splits_paper),
    *(drift, guided, links, order, placement_gap, scale),
    # Promises, pictures, and what is kept.
    *(campaign, campaign_models, campaign_rivals, faults, fuzz, hostile, overload, updates),
    *(dashboard, pictures, screenshots, readme, stale, walk),
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
for command in COMMANDS:
    app.command(name=command.__name__)(command)
cluster = typer.Typer(help="Places on other hosts: raylets behind slow links, on this host.")
for command in (hop, serve, kills, slow_link):
    cluster.command(name=command.__name__)(command)
app.add_typer(cluster, name="cluster")


@app.callback(invoke_without_command=True)
def _all(context: typer.Context) -> None:
    """The short benchmarks: a few minutes of two cores. Tables here; CSV and figures in benchmarks/results/quick."""
    if context.invoked_subcommand is None:
        race("squeezenet", sides="daemon_shared,engines", quick=True)
        emulation()
        live_change(quick=True)
        placement_gap(quick=True)
        engines(quick=True)
        pim_board(quick=True)
        dcg(quick=True)
        shisha(quick=True)


if __name__ == "__main__":
    try:
        app()
    except (BadInput, Failure) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, BadInput) else 1)
