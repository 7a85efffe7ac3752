"""A model made ready for a machine: how it is cut there, and what is known of its costs there.

Where no place has devices, a stage is a cut of the engine's optimised graph, and layers are measured. Where some have
stages are made of the cleaned graph's operators, each on its device; a layer costs what the best placement makes it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shisha_rt.cache import cache_folder
from shisha_rt.costs.layer_costs import LayerCosts, RawCosts
from shisha_rt.costs.links import HostLink, Links
from shisha_rt.costs.operator_costs import OperatorCosts, beside
from shisha_rt.costs.profiles import Setting
from shisha_rt.costs.split_costs import PricedSplit, ShardTime
from shisha_rt.errors import BadInput
from shisha_rt.machine.config.device_files import running_devices
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import Compiled, compile_model
from shisha_rt.measure.cost_tensors import cost_tensors
from shisha_rt.measure.device_profile import profile_devices
from shisha_rt.measure.profile import known_costs, profile_model, teams_to_measure
from shisha_rt.measure.profile_store import FILE_NAME, ProfileStore
from shisha_rt.measure.scales import check_int8, make_scales
from shisha_rt.measure.shapes import compile_shapes
from shisha_rt.messages.scales import scales_file
from shisha_rt.model.graph import Graph
from shisha_rt.model.input_sizes import ANY_SIZES, InputSizes
from shisha_rt.model.layer_kinds import LayerKind
from shisha_rt.model.layers import layer_of_operator, operators_of
from shisha_rt.model.split import Split, Splittable
from shisha_rt.placement.build import check_capable
from shisha_rt.placement.placed_costs import PlacedCosts
from shisha_rt.placement.shard_costs import shard_times, split_stage_s
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.plan.verify import PlanRules

log = logging.getLogger(__name__)

Tell = Callable[[str], None]


@dataclass(frozen=True)
class ModelOnMachine:
    """`operator_costs` has each place's; it is empty where no place of the machine has devices.

    `remote`: of places on other hosts, what their times depend on; `far`: their hosts and links, as first measured.

    `teams`: what several places take together is known too, or measured first; `team_costs` is as `operator_costs`, of
    each of the machine's teams: its lead's devices, on as many threads as it has. `scales`: the file with the model's
    scales, where a device is of int8.
    """

    compiled: Compiled
    machine: Machine
    operator_costs: Mapping[str, OperatorCosts]
    teams: bool = False
    team_costs: Mapping[Team, OperatorCosts] = field(default_factory=dict)
    scales: str = scales_file()
    remote: Mapping[str, Setting] = field(default_factory=dict)
    far: Mapping[str, HostLink] = field(default_factory=dict)

    @property
    def devices(self) -> Mapping[str, tuple[Device, ...]]:
        """Those of each place that run."""
        return {place: costs.devices for place, costs in self.operator_costs.items()}

    @property
    def rules(self) -> PlanRules:
        """What plans may be here."""
        layers, places, index = self.compiled.layers, self.machine.places, self.compiled.index
        return PlanRules(
            layer_count=len(layers),
            places=tuple(place.name for place in places),
            legal_cuts=self.compiled.legal_cuts,
            operator_counts=tuple(layer.last_operator - layer.first_operator + 1 for layer in layers),
            devices={
                place: tuple(device.name for device in place_devices) for place, place_devices in self.devices.items()
            },
            needs=self.compiled.needs,
            kinds={place.name: self.machine.kind_of(place) for place in places},
            single=self.single,
            far=frozenset(place.name for place in self.machine.remote),
            weight_bytes=tuple(layer.weight_bytes for layer in layers),
            live_bytes=tuple(max(layer.in_bytes, layer.out_bytes) for layer in layers),
            memory_bytes={place.name: place.memory_bytes for place in places if place.memory_bytes is not None},
            splits={} if self.unsplit else {((split.first, split.last), split.axis): split for split in index.splits},
            kept_whole={((kept.first, kept.last), kept.axis): self.unsplit or kept.reason for kept in index.kept_whole}
            | {((split.first, split.last), split.axis): self.unsplit for split in index.splits if self.unsplit},
        )

    @property
    def splits(self) -> tuple[Sequence[Splittable], Mapping[PricedSplit, ShardTime]]:
        """How layers may be split, and what is known beforehand of what shards take, stretched as all times there.

        On described devices that is their formulas, and what these do not tell is no way to split there.
        """
        ways = () if self.unsplit else self.compiled.index.splits
        devices = {place: device[0] for place, device in self.devices.items() if device[0].described}
        if not devices or self.unsplit:
            return ways, {}
        layers = layer_of_operator(self.compiled.layers)
        times = shard_times(self.compiled.model.graph, layers, ways, devices)
        known = {key[:2] for key in times}
        scale = self.machine.time_scale
        shares = {key: time.stretched(scale / self.machine.place(key[-1]).speed) for key, time in times.items()}
        return [way for way in ways if ((way.first, way.last), way.axis) in known], shares

    @property
    def unsplit(self) -> str:
        """Why no layer is split here; empty where some may be."""
        if len(self.compiled.each) > 1:
            return "the model is served in several shapes"
        crowded = [place for place, device in self.devices.items() if len(device) > 1]
        return f"place {crowded[0]} has several devices" if crowded else ""

    @property
    def links(self) -> Links | None:
        """What it takes to bring tensors to places on other hosts, if there are any."""
        return Links(cost_tensors(self.compiled.index), self.far) if self.machine.remote else None

    def layer_costs(self, on_progress: Tell | None = None) -> LayerCosts | PlacedCosts:
        """What layers take on the places; measured first if need be. Raises as `profile_model` does."""
        if self.operator_costs:
            graph, layers = self.compiled.model.graph, self.compiled.layers
            return PlacedCosts(graph, layers, self.machine, self.operator_costs, self.team_costs)
        return LayerCosts(self._profiled(on_progress), self.machine, self.links)

    def _profiled(self, on_progress: Tell | None) -> RawCosts:
        return profile_model(self.compiled, self.machine, on_progress, teams=self.teams, remote=self.remote)

    def known_costs(self) -> LayerCosts | PlacedCosts | None:
        """What layers take on the places, if nothing has to be measured for that. Raises as `profile_model` does."""
        if self.operator_costs:
            return self.layer_costs()
        costs = known_costs(self.compiled, self.machine, teams=self.teams, remote=self.remote)
        return None if costs is None else LayerCosts(costs, self.machine, self.links)

    def unable(self, plan: Plan) -> list[str]:
        """What places of a plan, one that fits the rules, cannot run as stages."""
        stage_notes = []
        for index, stage in enumerate(plan.stages):
            for place in stage.leads if self.operator_costs else ():
                if stage.split is not None:
                    stage_notes += self._unable_shard(index, stage, stage.split, place)
                    continue
                for run in stage.work:
                    first, last = operators_of(self.compiled.layers, *run)
                    able = self.operator_costs[place].part(first, last).capable
                    if not able.all():
                        operator = self.compiled.model.graph.operators[first + able.tolist().index(False)]
                        what = f"{operator.op_type} ({operator.name!r})"
                        stage_notes.append(f"stage {index} is on {place}, which cannot run its operator {what}")
        return stage_notes

    def _unable_shard(self, index: int, stage: Stage, split: Split, place: str) -> list[str]:
        (device,) = self.devices[place]
        layers = layer_of_operator(self.compiled.layers)
        seconds = split_stage_s(self.compiled.model.graph, layers, split, stage.work, device)
        if seconds is None or math.isfinite(seconds):
            return []
        return [f"stage {index} is on {place}, which cannot run {split} of layers {split.span[0]}-{split.span[1]}"]

    @property
    def partial(self) -> frozenset[str]:
        """The places that cannot run every operator by itself."""
        return frozenset(place for place, costs in self.operator_costs.items() if not costs.capable_alone.all())

    @property
    def single(self) -> frozenset[str]:
        """The places that are teams of one: emulated ones, and those where a device takes what a description says."""
        return frozenset(
            place.name
            for place in self.machine.places
            if self.machine.is_emulated(place) or any(device.described for device in self.devices.get(place.name, ()))
        )


def _check_several_shapes(machine: Machine, *, has_devices: bool) -> None:
    """Raises BadInput where what a frame takes is told by a formula or by bytes, which are another in each shape."""
    limited = any(memory.bandwidth_bytes_per_s is not None for memory in machine.memories)
    for has, what in (
        (has_devices, "its places have devices"),
        (machine.timing == "modelled", 'it has timing = "modelled"'),
        (limited, "it has a memory of limited bandwidth"),
    ):
        if has:
            raise BadInput(f"{machine.source}: {what}: expected one --shape, as several cannot be served there")


def check_static(graph: Graph, source: str, machine: Machine) -> None:
    """Raises BadInput for a tensor whose shape depends on the data: what devices take and move goes by sizes."""
    open_tensor = next((tensor for tensor in graph.tensors.values() if tensor.open_axes), None)
    if open_tensor is not None:
        raise BadInput(
            f"{source}: the shape of tensor {open_tensor.name!r} depends on the data; expected static shapes, "
            f"as places of {machine.source} have devices"
        )


def make_ready(
    path: Path,
    machine: Machine,
    *,
    sizes: Sequence[InputSizes] = (ANY_SIZES,),
    precision: str = "exact",
    calibration: Path | None = None,
    kind: LayerKind = "heavy",
    teams: bool = False,
    on_progress: Tell | None = None,
) -> ModelOnMachine:
    """Read, clean and optimise the model at `path`; devices are measured if they have not been before.

    `sizes`: one, or those of several shapes that are served at once.

    `teams`: plans may have teams of places, so that what those take is wanted as well.

    `calibration`: frames on which devices of int8 have their scales found (see `make_scales`).

    Raises BadInput for a bad model, for a `kind` of layers that this machine cannot be cut into, for devices that this
    host or `precision` does not allow, and for an operator that no device of any place can run or that makes a tensor
    without a static shape; Failure if an engine fails.
    """
    devices = {place.name: running_devices(machine, place, precision) for place in machine.places}
    for place in machine.places:
        if len(devices[place.name]) < len(place.devices):
            running = ", ".join(device.name for device in devices[place.name])
            log.warning(
                '%s: of its devices only %s run: the others change results (precision = "any")', place.name, running
            )
    has_devices = any(devices.values())
    if kind != "heavy" and not has_devices:
        raise BadInput(f'{machine.source}: no place has devices, which layers = "{kind}" is for, expected "heavy"')
    if has_devices and machine.remote:
        name = machine.remote[0].name
        raise BadInput(f"{machine.source}: place {name} is on another host: expected no devices on others, yet")
    if len(sizes) > 1:
        _check_several_shapes(machine, has_devices=has_devices)
        return ModelOnMachine(compile_shapes(path, sizes, on_progress), machine, {}, teams)
    of_int8 = [device for place_devices in devices.values() for device in place_devices if device.precision == "int8"]
    for device in of_int8:
        check_int8(device)
    if calibration is not None and not of_int8:
        raise BadInput(f"{calibration}: on {machine.source} no device of int8 runs: expected no calibration frames")
    compiled = compile_model(path, sizes[0], on_progress, plain=has_devices, kind=kind)
    if not has_devices:
        return ModelOnMachine(compiled, machine, {}, teams)
    check_static(compiled.model.graph, str(path), machine)
    scales = make_scales(compiled, calibration, on_progress) if of_int8 else scales_file()
    with ProfileStore(cache_folder() / FILE_NAME) as store:
        profiled = partial(profile_devices, compiled, machine, on_progress=on_progress, store=store)
        costs = {place.name: profiled(place, devices[place.name]).costs for place in machine.places}
        check_capable(compiled.model.graph, beside(costs.values()))
        model_on_machine = ModelOnMachine(compiled, machine, costs, teams, scales=scales)
        if not teams:
            return model_on_machine
        together = {
            team: machine.together(team)
            for team in teams_to_measure(machine)
            if model_on_machine.single.isdisjoint(team)
        }
        return replace(
            model_on_machine,
            team_costs={team: profiled(merged, devices[merged.name]).costs for team, merged in together.items()},
        )
