"""`python -m benchmarks cluster PART`."""

from __future__ import annotations

import typer

from benchmarks.cluster.hop import hop
from benchmarks.cluster.kills import kills
from benchmarks.cluster.link_slowed import slow_link
from benchmarks.cluster.serve import serve

cluster = typer.Typer(help="Places on other hosts: raylets behind slow links, on this host.")
for _part in (hop, serve, kills, slow_link):
    cluster.command(name=_part.__name__)(_part)
