"""The paper's networks as they are run here, and the plan of each scheme for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import onnx

from benchmarks.partitiontuner.board import NETWORKS, Cell, Published, cell_of, sunk_path
from benchmarks.partitiontuner.board import SCHEMES as PUBLISHED
from benchmarks.partitiontuner.numbers import FITTED
from shisha_rt.errors import BadInput
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner.forkjoin import fork_join_blocks
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.planner.strategies import SchemeName

OURS: Final[SchemeName] = "forkjoin"
TITLES: Final[Mapping[SchemeName, str]] = {**PUBLISHED, OURS: "ours"}
PERMITTED: Final = "any"
"""Precision: any, as the NPU computes with integers of 8 bits."""
GIVEN: Final = "as given"
SUNK: Final = "Relu sunk"


@dataclass(frozen=True, slots=True)
class Case:
    """A network of the zoo, `GIVEN` or with Relus `SUNK` under a Concat, as the paper's compiler does."""

    network: str
    form: str
    path: Path

    @property
    def published(self) -> Published:
        return NETWORKS[self.network]

    def __str__(self) -> str:
        return self.published.title + (f", {self.form}" if self.form == SUNK else "")


@dataclass(frozen=True, slots=True)
class Measured:
    """The board's seconds for each frame: in the daemon, from receipt to answer, and as the client sees it.

    `in_stages_s`: time in stages, in sequence or in parallel as in the plan.
    """

    daemon_s: tuple[float, ...]
    client_s: tuple[float, ...]
    in_stages_s: tuple[float, ...]

    @property
    def latency_s(self) -> float:
        return median(self.daemon_s)

    @property
    def stages_s(self) -> float:
        return median(self.in_stages_s)

    @property
    def handover_s(self) -> float:
        """Latency beyond the time in stages."""
        return median(whole - stages for whole, stages in zip(self.daemon_s, self.in_stages_s, strict=True))


@dataclass(frozen=True, slots=True)
class Planned:
    """A scheme's plan for a case, and its cells; `measured`: None if it was not executed.

    `planning_s`: how long planning took. `over_bound`: for ours, its makespan over the proven lower bound of fork-join
    schedules; 1 for others.
    """

    case: Case
    scheme_plan: SchemePlan
    cell: Cell
    convs: int
    planning_s: float
    over_bound: float = 1.0
    measured: Measured | None = None

    @property
    def scheme(self) -> SchemeName:
        return self.scheme_plan.scheme

    @property
    def stages_s(self) -> float:
        """Unloaded latency without hand-overs."""
        return self.scheme_plan.foretold.latency_s - self.scheme_plan.foretold.handover_s

    @property
    def predicted_ms(self) -> float:
        """Predicted time with assumed hand-overs."""
        return 1e3 * self.scheme_plan.foretold.latency_s

    @property
    def executed_ms(self) -> float | None:
        return None if self.measured is None else 1e3 * self.measured.latency_s

    @property
    def stages_ms(self) -> float | None:
        """Executed time without hand-overs."""
        return None if self.measured is None else 1e3 * self.measured.stages_s

    @property
    def paper_ms(self) -> float | None:
        """The time of Table 2; None for our own scheme."""
        schemes = list(PUBLISHED)
        return self.case.published.ms[schemes.index(self.scheme)] if self.scheme in schemes else None

    @property
    def fitted(self) -> bool:
        """Whether the board's description was fitted to the paper's time; else ours is a prediction."""
        return self.case.network in FITTED.get(self.scheme, ())


def cases(networks: Sequence[str], folder: Path) -> Iterator[Case]:
    """Each network as given and, if that differs, with its Relus sunk, which is written to `folder`.

    Raises BadInput for a network that is not in the paper.
    """
    for network in networks:
        if network not in NETWORKS:
            raise BadInput(f"--networks: {network}: the paper has not got it, expected some of {', '.join(NETWORKS)}")
        given = zoo_path(network, print)
        yield Case(network, GIVEN, given)
        path = sunk_path(network, folder)
        if _operators(path) != _operators(given):
            yield Case(network, SUNK, path)


def _operators(path: Path) -> int:
    return len(onnx.load(path, load_external_data=False).graph.node)


def ready_for(path: Path, machine: Machine) -> ModelOnMachine:
    """A model as `serve` prepares it for a scheme: each operator is a layer."""
    return make_ready(path, machine, precision=PERMITTED, kind=machine.finest_layers)


def planned(case: Case, scheme: SchemeName, costs: ProcessorCosts) -> Planned:
    start_s = time.monotonic()
    plan = scheme_plan(scheme, costs)
    planning_s = time.monotonic() - start_s
    assert plan is not None  # the CPU runs all
    over = _over_bound(costs) if scheme == OURS else 1.0
    return Planned(case, plan, cell_of(plan, costs.ops), costs.ops.count("Conv"), planning_s, over)


def _over_bound(costs: ProcessorCosts) -> float:
    solved = fork_join_blocks(apart_problem(costs))
    assert solved.schedule is not None  # the CPU runs all
    assert solved.lower_bound_s is not None
    return solved.schedule.makespan_s / solved.lower_bound_s
