"""Making a model ready for a machine: read and compiled, and the devices of the machine's places measured.

Where no place has devices, a stage is a cut of the engine's optimised graph, and layers are measured. If some places
have devices, stages are made of the cleaned graph's operators, each on its device; a layer costs what its best
placement costs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from shisha_rt.checked import refuse
from shisha_rt.costs.operator_costs import beside
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.device_files import running_devices
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import Tell, compile_model, silent
from shisha_rt.measure.device_profile import profile_devices
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.profile import teams_to_measure
from shisha_rt.measure.profile_store import ProfileStore
from shisha_rt.measure.scales import check_int8, make_scales
from shisha_rt.measure.shapes import compile_shapes
from shisha_rt.messages.scales import scales_file
from shisha_rt.model.graph import Graph
from shisha_rt.model.input_sizes import ANY_SIZES, InputSizes
from shisha_rt.model.layer_kinds import LayerKind
from shisha_rt.placement.build import check_capable

log = logging.getLogger(__name__)

Devices = Mapping[str, tuple[Device, ...]]
"""The devices that run, by place."""


def check_devices(
    machine: Machine, precision: str, *, kind: LayerKind, shapes: int, calibration: Path | None
) -> Devices:
    """The devices that run. Raises BadInput for what a machine cannot do, whatever the model.

    That is layers of `kind`, so many `shapes` at once, devices of int8, and calibration frames where there are none.
    """
    devices = {place.name: running_devices(machine, place, precision) for place in machine.places}
    refuse(_faults(machine, kind, devices), machine.source, Error.DEVICE_UNFIT)
    if shapes > 1:
        refuse(_shape_faults(machine, devices), machine.source, Error.WRONG_SIZES)
    of_int8 = _of_int8(devices)
    for device in of_int8:
        check_int8(device)
    if calibration is not None and not of_int8:
        why = f"on {machine.source} no device of int8 runs: expected no calibration frames"
        raise BadInput(f"{calibration}: {why}", Error.DEVICE_UNFIT)
    return devices


def _of_int8(devices: Devices) -> list[Device]:
    return [device for of_place in devices.values() for device in of_place if device.precision == "int8"]


def _faults(machine: Machine, kind: LayerKind, devices: Devices) -> Iterator[str]:
    """Layers that need devices where there are none, and devices with remote places."""
    has_devices = any(devices.values())
    if kind != "heavy" and not has_devices:
        yield f'no place has devices, which layers = "{kind}" is for, expected "heavy"'
    if has_devices and machine.remote:
        yield f"place {machine.remote[0].name} is on another host: expected no devices on others, yet"


def _shape_faults(machine: Machine, devices: Devices) -> Iterator[str]:
    """What makes a frame's time one of formulas or bytes, which differ from shape to shape."""
    for has, what in (
        (any(devices.values()), "its places have devices"),
        (machine.timing == "modelled", 'it has timing = "modelled"'),
        (
            any(memory.bandwidth_bytes_per_s is not None for memory in machine.memories),
            "it has a memory of limited bandwidth",
        ),
    ):
        if has:
            yield f"{what}: expected one --shape, as several cannot be served there"


def check_static(graph: Graph, source: str, machine: Machine) -> None:
    """Raises BadInput for a tensor whose shape depends on the data: costs of devices and transfers need sizes."""
    faults = (
        f"the shape of tensor {tensor.name!r} depends on the data; "
        f"expected static shapes, as places of {machine.source} have devices"
        for tensor in graph.tensors.values()
        if tensor.open_axes
    )
    refuse(faults, source, Error.OPEN_SHAPES)


def make_ready(
    path: Path,
    machine: Machine,
    *,
    sizes: Sequence[InputSizes] = (ANY_SIZES,),
    precision: str = "exact",
    calibration: Path | None = None,
    kind: LayerKind = "heavy",
    teams: bool = False,
    on_progress: Tell = silent,
) -> ModelOnMachine:
    """Read, clean and optimise the model at `path`; devices are measured if they have not been before.

    `sizes`: one, or those of several shapes that are served at once.

    `teams`: plans may have teams of places, so that what those take is wanted as well.

    `calibration`: frames on which devices of int8 have their scales found (see `make_scales`).

    Raises BadInput for a bad model, for a `kind` of layers that this machine cannot be cut into, for devices that this
    host or `precision` does not allow, and for an operator that no device of any place can run or that makes a tensor
    without a static shape; Failure if an engine fails.
    """
    devices = check_devices(machine, precision, kind=kind, shapes=len(sizes), calibration=calibration)
    _warn_of_left_out(machine, devices)
    if len(sizes) > 1:
        return ModelOnMachine(compile_shapes(path, sizes, on_progress), machine, {}, teams, precision=precision)
    has_devices = any(devices.values())
    compiled = compile_model(path, sizes[0], on_progress, plain=kind if has_devices else None)
    ready = ModelOnMachine(compiled, machine, {}, teams, precision=precision)
    if not has_devices:
        return ready
    check_static(compiled.model.graph, str(path), machine)
    scales = make_scales(compiled, calibration, on_progress) if _of_int8(devices) else scales_file()
    return _with_operator_costs(replace(ready, scales=scales), devices, on_progress)


def _warn_of_left_out(machine: Machine, devices: Devices) -> None:
    for place in machine.places:
        if len(devices[place.name]) < len(place.devices):
            running = ", ".join(device.name for device in devices[place.name])
            log.warning(
                '%s: of its devices only %s run: the others change results (precision = "any")', place.name, running
            )


def _with_operator_costs(ready: ModelOnMachine, devices: Devices, on_progress: Tell) -> ModelOnMachine:
    """`ready` with operator costs on the devices of each place, and of each team if teams are wanted."""
    compiled, machine = ready.compiled, ready.machine
    with ProfileStore() as store:
        profiled = partial(profile_devices, compiled, machine, on_progress=on_progress, store=store)
        costs = {place.name: profiled(place, devices[place.name]).costs for place in machine.places}
        check_capable(compiled.model.graph, beside(costs.values()))
        ready = replace(ready, operator_costs=costs)
        if not ready.teams:
            return ready
        together = {team: machine.together(team) for team in teams_to_measure(machine) if ready.single.isdisjoint(team)}
        team_costs = {team: profiled(merged, devices[merged.name]).costs for team, merged in together.items()}
        return replace(ready, team_costs=team_costs)
