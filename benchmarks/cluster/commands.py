"""`python -m benchmarks cluster PART`."""

from __future__ import annotations

import typer

from benchmarks.cluster.hop import hop

cluster = typer.Typer(help="Places on other hosts: raylets behind slow links, on this host.")
for _part in (hop,):
    cluster.command(name=_part.__name__)(_part)
