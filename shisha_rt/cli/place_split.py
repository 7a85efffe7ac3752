"""`shisha-rt place split`: each heavy layer split over described devices, by their formulas (GP). Nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from shisha_rt.cli.options import Dims, Json, MachineFile, Model, PlaceName, Shapes, refuse_options, takes
from shisha_rt.planner.strategies import Execution, SplitMethod, SplitObjective, SplitVariable
from shisha_rt.studies import study


@dataclass(frozen=True, slots=True)
class SplitOptions:
    model: Model
    machine: MachineFile
    method: Annotated[SplitMethod, typer.Option(help="How shares are found.")] = "integer"
    objective: Annotated[SplitObjective, typer.Option(help="What is to be least.")] = "latency"
    parallel: Annotated[bool, typer.Option("--parallel", help="Devices compute side by side.")] = False
    variable: Annotated[
        SplitVariable, typer.Option(help="What is shared: filters (N), input channels (C) or rows (H).")
    ] = "N"
    k: Annotated[
        int | None,
        typer.Option("--k", min=1, metavar="N", help="geometric: what moves counts share^2N in the program (Eq. 14)."),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="geometric: condense at each solution once more, till it no longer moves.")
    ] = False
    one_for_all: Annotated[
        bool, typer.Option("--one-for-all", help="Limits of a device are of all layers together, not of each.")
    ] = False
    place_: PlaceName = None
    dim: Dims = None
    shape: Shapes = None
    as_json: Json = False

    @property
    def execution(self) -> Execution:
        return "parallel" if self.parallel else "sequence"


@takes(SplitOptions)
def place_split(options: SplitOptions) -> None:
    """Split heavy layers of MODEL over described devices.

    It is on paper. `shisha-rt place MODEL --split METHOD` is the same.

    \b
    Examples:
      shisha-rt place split zoo:vgg16 --machine tx2-cyclone --parallel
      shisha-rt place split zoo:alexnet --machine tx2-cyclone --method geometric --objective energy
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    if options.method != "geometric":
        refuse_options(options, "k again", f"not with --split {options.method}, expected --split geometric")
    study("answer_split")(options)
