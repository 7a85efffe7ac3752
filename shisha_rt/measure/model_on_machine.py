"""A model made ready for a machine: how it can be cut there, and its operators' known costs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shisha_rt.costs.links import HostLink
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.costs.profiles import Setting
from shisha_rt.extras import is_installed, pip_install
from shisha_rt.machine.device import Device
from shisha_rt.machine.host.processor import has_bfloat16
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.scales import scales_file
from shisha_rt.plan.engine import DEFAULT_ENGINE, STAGE_ENGINES, StageEngine
from shisha_rt.plan.plan import Team
from shisha_rt.plan.verify import PlanRules


@dataclass(frozen=True)
class ModelOnMachine:
    """`operator_costs`: by place; empty if no place of the machine has devices.

    `remote`: for places on other hosts, what their times depend on; `far`: their hosts and links, as first measured.

    `teams`: whether costs of teams are known or measured too. `team_costs`: as `operator_costs`, for each of the
    machine's teams: its lead's devices, on all of the team's threads. `scales`: the file with the model's scales, for
    int8 devices. `precision`: "any" if engines may change results, else "exact".
    """

    compiled: Compiled
    machine: Machine
    operator_costs: Mapping[str, OperatorCosts] = field(default_factory=dict)
    teams: bool = False
    team_costs: Mapping[Team, OperatorCosts] = field(default_factory=dict)
    scales: str = scales_file()
    remote: Mapping[str, Setting] = field(default_factory=dict)
    far: Mapping[str, HostLink] = field(default_factory=dict)
    precision: str = "exact"

    @property
    def devices(self) -> Mapping[str, tuple[Device, ...]]:
        return {place: costs.devices for place, costs in self.operator_costs.items()}

    @property
    def rules(self) -> PlanRules:
        """The rules that plans must satisfy here."""
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
            engines=tuple(engine for engine in STAGE_ENGINES if engine not in self.engines_barred),
            engines_barred=self.engines_barred,
            mixing=self._mixing,
            tied=tuple(dict.fromkeys(group for shape in self.compiled.each for group in shape.index.tied)),
            one_by_one=self._one_by_one,
        )

    @property
    def engines_barred(self) -> Mapping[StageEngine, str]:
        """For each engine that may compute no stage here: why."""
        machine, usual = self.machine, f"expected {DEFAULT_ENGINE}"
        if self.operator_costs:
            why = f"places of {machine.source} have devices, which name their engines: expected no engine"
        elif machine.remote:
            why = f"place {machine.remote[0].name} is on another host: {usual}"
        elif machine.timing == "modelled":
            why = f'{machine.source} has timing = "modelled", by what {DEFAULT_ENGINE} takes: {usual}'
        else:
            why = self._why_no_openvino
            barred: dict[StageEngine, str] = {"openvino": why, "openvino_bf16": why or self._why_no_bfloat16}
            return {engine: why for engine, why in barred.items() if why}
        return dict.fromkeys(("onnxruntime-spin", "openvino", "openvino_bf16"), why)

    @property
    def _why_no_openvino(self) -> str:
        open_output = next((spec.name for spec in self.compiled.index.outputs if spec.open_axes), None)
        if not is_installed("openvino"):
            return f"it is not installed: expected the extra 'openvino', {pip_install('openvino')}"
        if open_output is not None:
            return f"the shape of output {open_output!r} depends on the data: expected {DEFAULT_ENGINE}"
        return ""

    @property
    def _why_no_bfloat16(self) -> str:
        if self.precision == "exact":
            return 'it changes results: expected precision = "any", or openvino'
        return "" if has_bfloat16() else "this processor has neither AVX-512 BF16 nor AMX: expected openvino"

    @property
    def _mixing(self) -> tuple[str, ...]:
        """(layers,): why a layer computes one frame at a time, in some shape; empty if it need not."""
        each = zip(*(shape.index.mixing for shape in self.compiled.each), strict=True)
        return tuple(next(filter(None, reasons), "") for reasons in each)

    @property
    def _one_by_one(self) -> dict[str, str]:
        """For each place on which stages compute one frame at a time: why."""
        machine = self.machine
        described = {name for name, costs in self.devices.items() if any(device.described for device in costs)}
        reasons = {place.name: "is on another host" for place in machine.remote}
        reasons |= dict.fromkeys(described, "has devices that are described")
        if machine.timing == "modelled":
            reasons |= {place.name: "is timed by stored costs" for place in machine.places}
        return reasons

    @property
    def unsplit(self) -> str:
        """Why no layer may be split here; empty if layers may be."""
        if len(self.compiled.each) > 1:
            return "the model is served in several shapes"
        crowded = [place for place, device in self.devices.items() if len(device) > 1]
        return f"place {crowded[0]} has several devices" if crowded else ""

    @property
    def partial(self) -> frozenset[str]:
        """The places with an operator that none of their devices can run by itself."""
        return frozenset(place for place, costs in self.operator_costs.items() if not costs.capable_alone.all())

    @property
    def single(self) -> frozenset[str]:
        """The places that are only teams of one: emulated places, and places with a described device."""
        return frozenset(
            place.name
            for place in self.machine.places
            if self.machine.is_emulated(place, self.devices.get(place.name, ()))
        )
