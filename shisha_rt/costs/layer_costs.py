"""The costs of each layer on each place, from raw profiles and a machine.

The emulation's target is per stage: max(CPU / threads / speed, bytes / bandwidth), times the machine's time scale.
`PacedCosts.modelled_s` is exactly that. COSTS.json has only sums over layers. If no bandwidth is limited, both are the
same. If one is, no times of single layers can add up to the target: a tensor between two layers moves only if there is
a cut, and a stage's larger term is not the sum of its layers' larger terms. That sum would be a bound, but 40% too high
for SqueezeNet on `demo`. So layers get times whose sums agree with the target for runs as long as stages are, by the
fit that is also used for raw times (`costs.fit`). Each place is assumed to have the memory's whole bandwidth: the cost
of sharing it depends on the plan.

Entering a stage costs nothing (`transfer_s` 0): the stage before has written the tensors to shared memory, as part of
its own time. At cuts that the engine does not allow `transfer_s` is nan.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.costs import CostBatch, CostLayer, CostPlace, Costs, CostTeam, with_links
from shisha_rt.costs.fit import fit_groups, tilings_of
from shisha_rt.costs.links import Links
from shisha_rt.machine.machine import Machine, target_s
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import Layer, operators_of
from shisha_rt.model.spans import Span, moved_bytes
from shisha_rt.plan.plan import Team


@dataclass(frozen=True, slots=True, eq=False)
class RawTimes:
    """(groups,) seconds on unthrottled cores: CPU time of all `threads`, and time by the clock.

    Fitted to the times of longer runs (`costs.fit`); `correction`: by how much the fit changed their sum of CPU time.
    """

    threads: int
    cpu_s: Floats
    wall_s: Floats
    correction: float

    @property
    def unpaced_s(self) -> Floats:
        """Seconds without pacing. For one thread its CPU time, which excludes other processes' time on the core."""
        return self.cpu_s if self.threads == 1 else self.wall_s


@dataclass(frozen=True, slots=True, eq=False)
class RawCosts:
    """A model's measured costs, before any speed or bandwidth is applied.

    `groups` are the spans of layers that can be cut out. `times` is by place: places of one class have the same.
    `teams`: times of several places together, as far as measured. `others_ratio`: the largest share of the cores that
    other processes took during any measurement. `shared_ratio`: by batch size and place, (groups,) time of each frame
    of a batch over that of a single frame; nan where a batch cannot run.
    """

    graph: Graph
    layers: tuple[Layer, ...]
    groups: tuple[Span, ...]
    times: Mapping[str, RawTimes]
    teams: Mapping[Team, RawTimes] = field(default_factory=dict)
    others_ratio: float = 0.0
    shared_ratio: Mapping[int, Mapping[str, Floats]] = field(default_factory=dict)


def mean_costs(graph: Graph, layers: tuple[Layer, ...], shapes: Sequence[RawCosts]) -> RawCosts:
    """Mean costs of a model that is served in several shapes, each shape counting the same.

    `graph` and `layers` stand for all shapes. Groups and places are the same in all; only teams that are known in all
    shapes are included.
    """
    first, *further = shapes
    if not further:
        return first
    return RawCosts(
        graph=graph,
        layers=layers,
        groups=first.groups,
        times={place: _mean([shape.times[place] for shape in shapes]) for place in first.times},
        teams={
            team: _mean([shape.teams[team] for shape in shapes])
            for team in first.teams
            if all(team in shape.teams for shape in shapes)
        },
        others_ratio=max(shape.others_ratio for shape in shapes),
        shared_ratio={
            frames: {
                place: np.mean([shape.shared_ratio[frames][place] for shape in shapes], axis=0) for place in ratio_of
            }
            for frames, ratio_of in first.shared_ratio.items()
        },
    )


def _mean(times: Sequence[RawTimes]) -> RawTimes:
    return RawTimes(
        times[0].threads,
        np.mean([time.cpu_s for time in times], axis=0),
        np.mean([time.wall_s for time in times], axis=0),
        math.fsum(time.correction for time in times) / len(times),
    )


class PacedCosts(ABC):
    """Costs of one model on one machine, paced by its speeds and bandwidths.

    Places are given by name, layers as first and last, inclusive. `others_ratio`: the largest share of the cores that
    other processes took during any measurement; 0 if that was not measured.
    """

    def __init__(
        self, graph: Graph, layers: tuple[Layer, ...], machine: Machine, teams: Mapping[Team, PacedCosts]
    ) -> None:
        """`teams`: costs of each team as the only place of a machine."""
        self.others_ratio = 0.0
        self._graph = graph
        self._layers = layers
        self._machine = machine
        self._alone = teams

    @abstractmethod
    def costs(self) -> Costs:
        """The additive form (see the module's docstring), as in COSTS.json; nan where a place cannot run a layer."""

    @abstractmethod
    def segment_cpu_s(self, first: int, last: int, place: str) -> float:
        """CPU seconds of all threads for one frame at full speed: what `timing = "modelled"` paces by."""

    def modelled_s(self, first: int, last: int, place: str) -> float:
        """Seconds of a stage for one frame if no other place uses its memory.

        Bytes are those of the cleaned graph; an engine that pads channels moves up to 1% more.
        """
        return self._span_s(first, last, moved_bytes(self._graph, *operators_of(self._layers, first, last)), place)

    def _span_s(self, first: int, last: int, size_bytes: int, place_name: str) -> float:
        machine, place = self._machine, self._machine.place(place_name)
        return machine.time_scale * target_s(
            self.segment_cpu_s(first, last, place_name),
            size_bytes,
            threads=place.threads,
            speed=place.speed,
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s(place),
        )

    def _teams(self) -> tuple[CostTeam, ...]:
        return tuple(CostTeam(team, of_team.costs().time_s[:, 0]) for team, of_team in self._alone.items())


class LayerCosts(PacedCosts):
    """Costs by measured times of layers.

    `links`: tensors between layers, and the links to places on other hosts; a remote place without a link is a host of
    its own that costs nothing to reach.
    """

    def __init__(self, raw: RawCosts, machine: Machine, links: Links | None = None) -> None:
        ones = {team: replace(raw, times={team[0]: times}, teams={}) for team, times in raw.teams.items()}
        teams = {team: LayerCosts(of_team, machine.as_one(team)) for team, of_team in ones.items()}
        super().__init__(raw.graph, raw.layers, machine, teams)
        self.others_ratio = raw.others_ratio
        self.raw = raw
        self._links = links or Links()
        self._group_of = [number for number, (first, last) in enumerate(raw.groups) for _ in range(first, last + 1)]
        self._share = [share for group in raw.groups for share in _shares(raw.layers, group)]

    def costs(self) -> Costs:
        layers = self._layers
        inner = {cut for first, last in self.raw.groups for cut in range(first, last)}
        time_s = np.array([self._layer_times_s(place.name) for place in self._machine.places]).T
        transfer_s = np.array([math.nan if cut in inner else 0.0 for cut in range(len(layers) - 1)])
        costs = additive(layers, self._machine, time_s, transfer_s)
        costs = replace(costs, teams=self._teams(), batches=tuple(self._batches(time_s)))
        return with_links(costs, self._links)

    def _batches(self, time_s: Floats) -> Iterator[CostBatch]:
        """Yield times of batches: paced times of single frames, times the measured ratios."""
        for frames, ratio_of in sorted(self.raw.shared_ratio.items()):
            ratio = np.array([ratio_of[place.name][self._group_of] for place in self._machine.places]).T
            yield CostBatch(frames, time_s * ratio)

    def segment_cpu_s(self, first: int, last: int, place: str) -> float:
        return self._sum(self.raw.times[place].cpu_s, first, last)

    def _layer_times_s(self, place: str) -> list[float]:
        raw, span_s = self.raw, partial(self._span_s, place_name=place)
        groups_s = fit_stages(raw.graph, raw.layers, raw.groups, span_s)
        return [float(groups_s[group]) * share for group, share in zip(self._group_of, self._share, strict=True)]

    def _span_s(self, first: int, last: int, size_bytes: int, place_name: str) -> float:
        """Pacing can only slow down: the larger of the target and the real computation."""
        unpaced_s = self._sum(self.raw.times[place_name].unpaced_s, first, last)
        return max(unpaced_s, super()._span_s(first, last, size_bytes, place_name))

    def _sum(self, groups_s: Floats, first: int, last: int) -> float:
        return math.fsum(float(groups_s[self._group_of[i]]) * self._share[i] for i in range(first, last + 1))


def additive(layers: Sequence[Layer], machine: Machine, time_s: Floats, transfer_s: Floats) -> Costs:
    """Costs of a machine's places; `time_s` is (layers, places), `transfer_s` (layers - 1,) seconds.

    Power is divided by the machine's time scale, so that a frame's energy stays the same.
    """
    for array in (time_s, transfer_s):
        array.flags.writeable = False
    return Costs(
        layers=tuple(
            CostLayer(layer.name, layer.weight, layer.weight_bytes, max(layer.in_bytes, layer.out_bytes))
            for layer in layers
        ),
        places=tuple(
            CostPlace(
                place.name,
                place.rank,
                place.memory_bytes,
                place.name if place.remote else None,
                None if place.power_w is None else place.power_w / machine.time_scale,
            )
            for place in machine.places
        ),
        time_s=time_s,
        transfer_s=transfer_s,
    )


def fit_stages(
    graph: Graph, layers: Sequence[Layer], groups: Sequence[Span], span_s: Callable[[int, int, int], float]
) -> Floats:
    """(groups,) seconds that add up to those of stages; `span_s` gets first and last layer, and the bytes moved.

    Single groups move only their weights, as inside a stage; longer runs, which set the level, move tensors as well.
    """
    spans_s = {
        (first, last): span_s(first, last, sum(layer.weight_bytes for layer in layers[first : last + 1]))
        for first, last in groups
    }
    windows = (window for tiling in tilings_of(groups) for window in tiling)
    spans_s |= {window: span_s(*window, moved_bytes(graph, *operators_of(layers, *window))) for window in windows}
    return fit_groups(groups, spans_s)


def _shares(layers: Sequence[Layer], group: Span) -> list[float]:
    """How a group's time is divided among its layers, which no cut can part: by Eq. 1, else equally (ours)."""
    first, last = group
    weights = [layer.weight for layer in layers[first : last + 1]]
    whole = sum(weights)
    return [weight / whole if whole else 1 / len(weights) for weight in weights]
