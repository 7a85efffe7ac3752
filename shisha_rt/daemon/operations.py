"""What the daemon says of itself, and what it can be told to do: every operation but `infer`.

Each is a function from typed arguments to the fields of its answer; a `WireError` becomes the error answer.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shisha_rt import __version__
from shisha_rt.daemon.front.gateway import Reply
from shisha_rt.daemon.shell import Shell
from shisha_rt.graph.graph import Tensor
from shisha_rt.lifecycle.events import Drain, PlaceDown, PlaceUp, Settled
from shisha_rt.machine.config.machine_file import core_faults
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.pipeline.strategies import LIVE
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import problems
from shisha_rt.ready.compile import Compiled
from shisha_rt.tuning.placing import Placing
from shisha_rt.tuning.tuning import State, Tuning
from shisha_rt.wire import operations as ops
from shisha_rt.wire.codes import Code, WireError
from shisha_rt.wire.limits import Limits
from shisha_rt.wire.request import OpRequest


class Control:
    """Answers operations. `instance` names this run of the daemon: a client that sees it change has lost its frames."""

    def __init__(
        self,
        shell: Shell,
        compiled: Compiled,
        machine: Machine,
        limits: Limits,
        tuning: Tuning,
        *,
        devices: Mapping[str, tuple[Device, ...]],
        placing: Placing | None,
    ) -> None:
        self.instance = uuid.uuid4().hex
        self.automatic = True  # the live plan is the daemon's own choice, so the daemon may replace it
        self._shell = shell
        self._compiled = compiled
        self._filed = machine
        self.machine = machine  # as it is now: its speeds can be changed
        self._limits = limits
        self._tuning = tuning
        self._placing = placing
        self._devices = devices
        self._started_s = time.monotonic()
        for place in machine.places:
            self._show_speed(place.name)
            for device in devices.get(place.name, ()):
                shell.metrics.device_speed.labels(place.name, device.name).set(1.0)
        self._answers: dict[str, Callable[[Any], Mapping[str, object]]] = {
            "server_live": lambda _: {"live": True},
            "server_ready": lambda _: {"ready": self.ready},
            "server_metadata": self._server_metadata,
            "model_ready": lambda _: {"name": compiled.model.name, "ready": self.ready},
            "model_metadata": self._model_metadata,
            "model_statistics": self._model_statistics,
            "status": lambda _: {"status": self.status()},
            "events": lambda a: shell.journal.since(a.since, a.limit),
            "plan_get": self._plan_get,
            "place_set": self._place_set,
            "tuner_get": lambda _: {"tuner": tuning.describe()},
            "tuner_set": self._tuner_set,
        }

    @property
    def ready(self) -> bool:
        """Whether a frame sent now would be admitted and run."""
        return self._shell.lifecycle.epochs.newest is not None and not self._shell.lifecycle.draining

    def answer(self, client: bytes, request: OpRequest, reply: Reply) -> None:
        """Answer one operation: at once, but for `plan_set`, which answers when its plan is settled."""
        try:
            match request.arguments:
                case ops.Cancel(target=target):
                    reply.fields({"cancelled": self._shell.admission.cancel(client, target)})
                case ops.PlanSet() as arguments:
                    self._plan_set(arguments.plan, reply)
                case arguments:
                    reply.fields(self._answers[request.op](arguments))
        except WireError as error:
            reply.error(error.code, error.message)

    # --- about the server and the model -----------------------------------------------------------------------

    def _server_metadata(self, _: object) -> Mapping[str, object]:
        return {
            "name": "shisha-rt",
            "version": __version__,
            "extensions": ["binary_tensor_data", "streams", "plans"],
            "max_in_flight": self._limits.max_in_flight,
            "max_message_bytes": self._limits.max_message_bytes,
            "instance": self.instance,
        }

    def _model_metadata(self, _: object) -> Mapping[str, object]:
        graph = self._compiled.model.graph
        return {
            "name": self._compiled.model.name,
            "versions": [],
            "platform": "onnx",
            "inputs": [_tensor(tensor) for tensor in graph.inputs],
            "outputs": [_tensor(tensor) for tensor in graph.outputs],
        }

    def _model_statistics(self, _: object) -> Mapping[str, object]:
        counts = self._shell.outcomes
        answered = sum(counts.values())
        succeeded = counts.get("OK", 0)
        totals = self._shell.totals_s
        stats = {
            "name": self._compiled.model.name,
            "inference_count": succeeded,
            "execution_count": succeeded,
            "inference_stats": {
                "success": {"count": succeeded, "ns": round(totals["latency"] * 1e9)},
                "fail": {"count": answered - succeeded, "ns": 0},
                "queue": {"count": succeeded, "ns": round(totals["queue"] * 1e9)},
                "compute_infer": {"count": succeeded, "ns": round(totals["compute"] * 1e9)},
            },
        }
        return {"model_stats": [stats]}

    def status(self) -> dict[str, object]:
        """Everything at a glance. Times in seconds, medians over the last frames of each stage."""
        lifecycle = self._shell.lifecycle
        newest, preparing = lifecycle.epochs.newest, lifecycle.epochs.preparing
        stages = self._stages()
        bottleneck_s = self._bottleneck_s(stages)
        return {
            "state": "draining" if lifecycle.draining else "serving" if newest else "starting",
            "version": __version__,
            "instance": self.instance,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "model": {
                "name": self._compiled.model.name,
                "layers": len(self._compiled.layers),
                "legal_cuts": len(self._compiled.legal_cuts),
                "engine": self._compiled.index.engine,
            },
            "machine": {
                "name": self.machine.name,
                "emulated": any(map(self._is_emulated, self.machine.places)),
                "timing": self.machine.timing,
                "time_scale": self.machine.time_scale,
                "memories": [
                    {"name": memory.name, "bandwidth_bytes_per_s": memory.bandwidth_bytes_per_s}
                    for memory in self.machine.memories
                ],
            },
            "plan": {"epoch": newest.number if newest else None, "stages": stages},
            "preparing": preparing.number if preparing else None,
            "tuner": self._tuning.describe(),
            "throughput_fps": 1 / bottleneck_s if bottleneck_s else None,
            "bottleneck_s": bottleneck_s,
            "places": self._places(),
            "frames": {
                "in_flight": lifecycle.undelivered,
                "slots": lifecycle.slot_count,
                "slots_free": len(lifecycle.free_slots),
                "answered": dict(self._shell.outcomes),
                "replayed": lifecycle.replayed,
            },
            "fault": self._shell.fault,
        }

    def _places(self) -> list[dict[str, object]]:
        processes = {p.place: p.popen.pid for p in self._shell.supervisor.processes.values()}
        known = self._shell.lifecycle.places.by_name
        return [
            {
                "name": place.name,
                "state": known[place.name].phase.name.lower(),
                "available": known[place.name].available,
                "pid": processes.get(place.name),
                "cores": place.cores,
                "threads": place.threads,
                "speed": place.speed,
                "memory": place.memory,
                "devices": self._device_states(place.name),
                "emulated": self._is_emulated(place),
                "restarts": known[place.name].restarts,
                "last_error": known[place.name].last_error or None,
            }
            for place in self.machine.places
        ]

    def _device_states(self, place: str) -> list[dict[str, object]]:
        index = [p.name for p in self.machine.places].index(place)
        devices = self._devices.get(place, ())
        speeds = [self._shell.arena.device_speed(index, number) for number in range(len(devices))]
        return [
            {
                "name": device.name,
                "emulated": device.described or speed != 1,
                "exact": device.exact,
                "speed": speed,
            }
            for device, speed in zip(devices, speeds, strict=True)
        ]

    # --- plans and places -------------------------------------------------------------------------------------

    def _stages(self) -> list[dict[str, object]]:
        newest = self._shell.lifecycle.epochs.newest
        if newest is None:
            return []
        return [
            {
                "first": stage.first,
                "last": stage.last,
                "places": stage.places,
                **self._shell.telemetry.window(newest.number, i).summary(),
                "placement": self._placing.describe(newest.number, i) if self._placing is not None else None,
            }
            for i, stage in enumerate(newest.plan.stages)
        ]

    @staticmethod
    def _bottleneck_s(stages: list[dict[str, object]]) -> float | None:
        times = [stage["service_s"] for stage in stages]
        known = [t for t in times if isinstance(t, float)]
        return max(known) if known and len(known) == len(times) else None

    def _plan_get(self, _: object) -> Mapping[str, object]:
        newest = self._shell.lifecycle.epochs.newest
        keys = ("first", "last", "places", "service_s")
        stages = [{key: stage[key] for key in keys} for stage in self._stages()]
        return {"epoch": newest.number if newest else None, "stages": stages}

    def _plan_set(self, plan: Plan, reply: Reply) -> None:
        if self._shell.lifecycle.draining:
            raise WireError(Code.UNAVAILABLE, "the daemon is draining and changes no plan")
        faults = problems(
            plan,
            layer_count=len(self._compiled.layers),
            places={place.name for place in self.machine.places},
            legal_cuts=self._compiled.legal_cuts,
        )
        if faults:
            self._shell.count_refused(plan, faults[0])
            reply.fields({"epoch": None, "outcome": "refused", "reason": faults[0]})
            return

        def settled(end: Settled) -> None:
            self.automatic = self.automatic and end.outcome != "live"
            reply.fields({"epoch": end.epoch, "outcome": end.outcome, "reason": end.reason})

        self._tuning.pause("a client sets the plan", keep_best=False)
        self._shell.propose(plan, settled)

    def _place_set(self, arguments: ops.PlaceSet) -> Mapping[str, object]:
        name = arguments.place
        places = self._shell.lifecycle.places
        if name not in places.by_name:
            known = ", ".join(places.by_name)
            raise WireError(Code.NOT_FOUND, f"place: the machine has no {name!r}; expected one of {known}")
        if arguments.speed is not None and arguments.device is not None:
            return self._set_device_speed(name, arguments.device, arguments.speed)
        if arguments.speed is not None:
            return self._set_speed(name, arguments.speed)
        if arguments.down and places.available == (name,):
            raise WireError(Code.FAILED_PRECONDITION, f"place: {name!r} is the last one left; bring another up first")
        was_available = places.by_name[name].available
        self._shell.journal.write("place_down" if arguments.down else "place_up", place=name)
        self._shell.post(PlaceDown(name) if arguments.down else PlaceUp(name))
        if arguments.up and not was_available and self.automatic:
            self._shell.replan(f"place {name} is up again")
        return {"place": name, "state": "down" if arguments.down else "up"}

    def _set_speed(self, name: str, speed: float) -> Mapping[str, object]:
        """The worker goes by the new speed from its next frame on, and so does its successor."""
        if speed > 1:
            raise WireError(Code.INVALID_ARGUMENT, f"speed: {speed:g} is faster than this host; expected at most 1")
        changed = self.machine.with_speed(name, speed, self._filed.rank_at(name, speed))
        fault = next(core_faults(changed.places), None)
        if fault is not None:
            raise WireError(Code.FAILED_PRECONDITION, f"speed: {fault}")
        shell = self._shell
        shell.journal.write("place_speed", place=name, speed=speed, before=self.machine.place(name).speed)
        shell.arena.set_speed(self.machine.places.index(self.machine.place(name)), speed)
        for epoch in shell.lifecycle.epochs.live.values():
            if name in epoch.plan.places:
                shell.telemetry.window(epoch.number, epoch.plan.places.index(name)).restart()
        shell.metrics.speed.remove(*self._speed_labels(name))
        self.machine = self._tuning.best_plans.machine = changed
        self._show_speed(name)
        self._tuning.places = changed.places
        self._tuning.machine_changed(f"the speed of {name} is {speed:g} now")
        return {"place": name, "speed": speed}

    def _set_device_speed(self, name: str, device: str, speed: float) -> Mapping[str, object]:
        """Nobody is told: what its segments take from the next frame on is found out as on real devices."""
        known = [device.name for device in self._devices.get(name, ())]
        if device not in known:
            expected = f"one of {', '.join(known)}" if known else "none: it has no devices"
            raise WireError(Code.NOT_FOUND, f"device: place {name!r} has no {device!r}; expected {expected}")
        if speed > 1:
            raise WireError(Code.INVALID_ARGUMENT, f"speed: {speed:g} is faster than the device; expected at most 1")
        shell = self._shell
        shell.journal.write("device_speed", place=name, device=device, speed=speed)
        index = self.machine.places.index(self.machine.place(name))
        shell.arena.set_device_speed(index, known.index(device), speed)
        shell.metrics.device_speed.labels(name, device).set(speed)
        return {"place": name, "device": device, "speed": speed}

    def _show_speed(self, name: str) -> None:
        self._shell.metrics.speed.labels(*self._speed_labels(name)).set(self.machine.place(name).speed)

    def _speed_labels(self, name: str) -> tuple[str, str]:
        return name, str(self._is_emulated(self.machine.place(name))).lower()

    def _is_emulated(self, place: Place) -> bool:
        return self.machine.is_emulated(place) or any(device.described for device in self._devices.get(place.name, ()))

    # --- the tuner --------------------------------------------------------------------------------------------

    def _tuner_set(self, arguments: ops.TunerSet) -> Mapping[str, object]:
        tuning = self._tuning
        if tuning.state is State.OFF:
            raise WireError(Code.FAILED_PRECONDITION, "the daemon was started without a tuner (strategy seed)")
        if arguments.strategy is not None:
            self._set_strategy(arguments.strategy)
        if arguments.alpha is not None:
            tuning.options = replace(tuning.options, alpha=arguments.alpha)
        if arguments.pause:
            tuning.pause("a client has paused it", keep_best=True)
        elif arguments.restart or (arguments.resume and tuning.state is State.PAUSED):
            self.automatic = True
            tuning.begin("a client has asked for it")
        return {"tuner": tuning.describe()}

    def _set_strategy(self, strategy: str) -> None:
        """For the next search."""
        if strategy not in LIVE:
            known = " or ".join(map(repr, LIVE))
            raise WireError(Code.UNIMPLEMENTED, f"strategy: {strategy!r} is not built yet; expected {known}")
        if strategy == "guided" and not self._tuning.knows_costs:
            raise WireError(
                Code.FAILED_PRECONDITION,
                "strategy: 'guided' needs measured costs, and this daemon was started without them; expected 'shisha'",
            )
        self._tuning.options = replace(self._tuning.options, strategy=strategy)

    def drain(self) -> None:
        if not self._shell.lifecycle.draining:
            self._shell.journal.write("draining", in_flight=self._shell.lifecycle.undelivered)
            self._shell.post(Drain())


def _tensor(tensor: Tensor) -> dict[str, object]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
