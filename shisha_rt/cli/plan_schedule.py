"""`shisha-rt plan schedule`: a network's partitions over places that are a processor each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from shisha_rt.cli.completion import offer
from shisha_rt.cli.options import Dims, Json, MachineFile, Model, Shapes, takes
from shisha_rt.cli.plan import plan
from shisha_rt.machine.precision import PERMITTED
from shisha_rt.planner.strategies import SchemeName


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """The options of `plan` that belong to schedules, under the names that `plan` gives them."""

    model: Model
    machine: MachineFile = "this-machine"
    strategy: Annotated[SchemeName, typer.Option(help="How partitions are made and scheduled.")] = "forkjoin"
    precision: Annotated[
        str,
        typer.Option(
            metavar="|".join(PERMITTED),
            help="exact: no device that changes results; any: those too.",
            autocompletion=offer(*PERMITTED),
        ),
    ] = "exact"
    program: Annotated[
        Path | None, typer.Option(metavar="FILE.py", help="Write the schedule as a Python program, with its parts.")
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="OP+OP", help="Operators in a row to measure as one, as Conv+Relu; repeatable."),
    ] = None
    dim: Dims = None
    shape: Shapes = None
    as_json: Json = False


@takes(ScheduleOptions)
def plan_schedule(options: ScheduleOptions) -> None:
    """Schedule partitions of MODEL over unlike processors.

    The schedule minimises the latency of one frame. Each place of the machine counts as one processor. The same as
    `shisha-rt plan MODEL --strategy NAME`.

    \b
    Examples:
      shisha-rt plan schedule zoo:squeezenet --machine npu-board --precision any
      shisha-rt plan schedule zoo:squeezenet --machine npu-board --precision any --program a.py
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    plan(**asdict(options))
