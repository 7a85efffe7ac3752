"""Split layers executed on the emulated board of the GP paper: the time of each shard by the formulas of its device
against that measured by a running daemon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.report.results import Row
from benchmarks.rigs.daemons import forced
from benchmarks.splits.plans import Shared, plan_with, way_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.model.layers import layer_of_operator
from shisha_rt.model.split import Splittable
from shisha_rt.model.zoo import resolve_model
from shisha_rt.placement.shard_costs import split_stage_s

BOARD: Final = "tx2-cyclone"
AIM_PERCENT: Final = 5.0
_HOME: Final = "gpu"
_CHOICES: Final = 32
"""Number of pieces into which a layer is divided among shards."""


@dataclass(frozen=True, slots=True)
class OnBoard:
    """A network, and which of its layers are split along which axis. It runs for at least `seconds`."""

    model: str
    split: tuple[tuple[int, str], ...]
    seconds: float


FULL: Final = (
    OnBoard(
        "squeezenet",
        ((0, "rows"), (1, "inputs"), (5, "channels"), (8, "channels"), (14, "channels"), (20, "rows"), (25, "inputs")),
        4.0,
    ),
    OnBoard(
        "alexnet",
        ((0, "channels"), (1, "groups"), (2, "channels"), (3, "groups"), (5, "columns"), (6, "inputs"), (7, "columns")),
        4.0,
    ),
    OnBoard(
        "vgg19",
        (
            (0, "channels"),
            (3, "rows"),
            (5, "channels"),
            (9, "inputs"),
            (13, "channels"),
            (16, "columns"),
        ),
        1.0,
    ),
)
QUICK: Final = FULL[:1]


class PricedShards:
    """Times of stages with a split on each place of the board, by its device's formulas, in the board's seconds."""

    def __init__(self, ready: ModelOnMachine) -> None:
        self.ways = tuple(ready.rules.splits.values())
        self._graph = ready.compiled.model.graph
        self._layers = layer_of_operator(ready.compiled.layers)
        self._devices = {place: devices[0] for place, devices in ready.devices.items()}

    def seconds(self, shared: Shared, number: int, place: str) -> float:
        """Seconds of a shard or join on a place; inf if the place cannot run it."""
        split = shared.part(number)
        taken_s = split_stage_s(self._graph, self._layers, split, [split.span], self._devices[place])
        assert taken_s is not None  # the board's devices are all described
        return taken_s

    def quickest(self, way: Splittable) -> Shared:
        """The shares of the least time, among those of whole pieces, over all places that can run one."""
        blocks = way.blocks
        pieces = min(_CHOICES, blocks)
        sizes = [way.block * round(number * blocks / pieces) for number in range(pieces + 1)]
        table = {place: [self._alone(way, place, size) for size in sizes] for place in self._devices}
        able = [place for place in self._devices if math.isfinite(min(table[place][1:]))]
        best_s, best = math.inf, None
        for counts in _compositions(pieces, len(able)):
            took_s = max(table[place][count] for place, count in zip(able, counts, strict=True))
            if took_s < best_s:
                best_s, best = took_s, counts
        assert best is not None
        shares = [sizes[count] for count in best]
        shares[-1] += way.units - sum(shares)
        return Shared(way, tuple(shares), tuple(able))

    def _alone(self, way: Splittable, place: str, size: int) -> float:
        if not 0 < size < way.units:
            return math.inf
        return self.seconds(Shared(way, (size, way.units - size), (place, place)), 0, place)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to divide `total` into `parts` numbers of at least one."""
    for cuts in itertools.combinations(range(1, total), parts - 1):
        yield tuple(after - before for before, after in itertools.pairwise((0, *cuts, total)))


def board_rows(case: OnBoard) -> Iterator[Row]:
    """A row for each shard and join of a network's plan that has been run."""
    machine = load_machine(BOARD)
    ready = make_ready(resolve_model(f"zoo:{case.model}", print), machine, precision="any", on_progress=print)
    priced = PricedShards(ready)
    shared = [priced.quickest(way_of(priced.ways, layer, axis)) for layer, axis in case.split]
    plan = plan_with(len(ready.compiled.layers), _HOME, shared)
    with forced(f"zoo:{case.model}", BOARD, precision="any") as daemon:
        daemon.take(plan)
        daemon.burst(case.seconds, warm_up=1)
        windows = daemon.control.status()["plan"]["stages"]
    names = [layer.name for layer in ready.compiled.layers]
    for stage, window in zip(plan.stages, windows, strict=True):
        if stage.split is None:
            continue
        split = stage.split
        share = next(option for option in shared if option.part(0).whole == split.whole)
        # What a join goes on with is no part of the split, and not among what is predicted here.
        if split.joins and stage.last > share.way.last:
            continue
        predicted_s, taken_s = priced.seconds(share, split.part, stage.place), window["service_s"]
        yield {
            "network": case.model,
            "machine": BOARD,
            "layer": names[stage.first],
            "place": stage.place,
            "share": str(stage.split).strip("()"),
            "predicted ms": 1e3 * predicted_s,
            "measured ms": 1e3 * taken_s,
            "error %": 100 * (taken_s / predicted_s - 1),
            # In the board's seconds: this host's time for a part must not exceed the emulated one.
            "computed here ms": 1e3 * window["cpu_s"] / machine.time_scale,
        }
