"""A network on the devices of one place: all operators as one stage with any placement, run by the worker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.rigs.cache_place import fresh_cache
from benchmarks.rigs.stage_rig import Loaded, StageRig, stage_rig
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.config.device_files import running_devices
from shisha_rt.machine.config.machine_file import check_runnable, parse_machine
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.device_profile import DeviceProfile, profile_devices
from shisha_rt.model.graph import Graph
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.stage_problem import stage_problem


def one_core() -> Machine:
    """An unthrottled core of this host with two engines, each on one thread and in fp32. Raises BadInput."""
    text = '[[place]]\nname = "core0"\ncores = [0]\ndevices = ["ort_serial", "openvino"]\n'
    machine = parse_machine(text, name="one core", source="benchmarks/rigs/one_place.py")
    check_runnable(machine)
    return machine


@dataclass(frozen=True, slots=True)
class OnePlace:
    """A network prepared for the first place of a machine; `devices`: of that place.

    A placement is (operators,): the name of each operator's device.
    """

    compiled: Compiled
    machine: Machine
    devices: tuple[Device, ...]

    @property
    def graph(self) -> Graph:
        return self.compiled.model.graph

    @property
    def place(self) -> Place:
        return self.machine.places[0]

    def problem(self, costs: OperatorCosts) -> Problem:
        """The placement problem of the whole network as one stage."""
        return stage_problem(self.graph, 0, len(self.graph.operators) - 1, costs)

    def rig(self, slot_count: int) -> AbstractContextManager[StageRig]:
        return stage_rig(self.compiled, self.machine, slot_count, {self.place.name: self.devices})

    def load(self, rig: StageRig, placement: Sequence[str]) -> Loaded:
        return rig.load(0, 0, len(self.compiled.layers) - 1, placement)

    def profile_twice(self) -> tuple[DeviceProfile, float, float]:
        """Profile as a first start does, and once more as later starts do; return the seconds of both."""
        taken_s = []
        with fresh_cache():
            for _ in range(2):
                began_s = time.monotonic()
                profile = profile_devices(self.compiled, self.machine, self.place, self.devices)
                taken_s.append(time.monotonic() - began_s)
        return profile, taken_s[0], taken_s[1]


def on_one_place(path: Path, machine: Machine, dims: Mapping[str, int], precision: str) -> OnePlace:
    """Prepare the network at `path`. Raises BadInput, also if an engine is not installed."""
    devices = running_devices(machine, machine.places[0], precision)
    return OnePlace(compile_model(path, InputSizes(dims), plain="heavy"), machine, devices)


def by_order(costs: OperatorCosts, order: Sequence[int]) -> tuple[str, ...]:
    """The placement of each operator on the first device in `order` (indices) that can run it."""
    firsts = np.isfinite(costs.time_s[:, list(order)]).argmax(axis=1)
    return tuple(costs.devices[order[first]].name for first in firsts)


def predicted_s(problem: Problem, placement: Sequence[str]) -> float:
    """Cost of a placement by `OnePlace.problem`, whose last device is the host, which runs the network's ends."""
    host = len(problem.devices) - 1
    return cost(problem, (host, *map(problem.devices.index, placement), host)).total_s
