"""All operations but `infer`: functions from typed arguments to the answer's fields, or to a `ShishaError`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from shisha_rt import __version__
from shisha_rt.checked import one_of
from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Drain, FrameCancelled, PlaceDown, PlaceUp
from shisha_rt.core.lifecycle.instructions import Ending, Settled
from shisha_rt.core.tuning.events import CrowdSeen, MachineChanged, OptionsSet, PauseAsked, PlaceReturned, SearchAsked
from shisha_rt.core.tuning.state import Profiles, State
from shisha_rt.core.tuning.telling import description
from shisha_rt.daemon.front.gateway import Gateway, Reply
from shisha_rt.daemon.status import Status
from shisha_rt.errors import Error
from shisha_rt.machine.machine import Machine, core_faults
from shisha_rt.model.graph import Tensor
from shisha_rt.plan.form import WrittenStage, read
from shisha_rt.plan.rate import ANY_OBJECTIVES
from shisha_rt.planner.strategies import LIVE, SCHEMES
from shisha_rt.protocol import operations as ops
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.request import OpRequest

_MISSING: Final = {
    Profiles.UNWANTED: "this daemon was started without them",
    Profiles.FAILED: "they could not be measured (the journal has the reason)",
}


class Operations:
    """Answers operations, at once or when they are done. `shared_memory`: the socket where clients are lent memory."""

    def __init__(self, status: Status, gateway: Gateway, shared_memory: Path | None) -> None:
        self._shell = shell = status.shell
        self._gateway = gateway
        self._status = status
        self._model = status.compiled.model
        self._devices = status.devices
        self._shared_memory = None if shared_memory is None else str(shared_memory)
        for place in self._machine.places:
            self._show_speed(place.name)
            for device in self._devices.get(place.name, ()):
                self._show_device_speed(place.name, device.name, 1.0)
        self._answers: dict[str, Callable[[Any], Mapping[str, object]]] = {
            "server_live": lambda _: {"live": True},
            "server_ready": lambda _: {"ready": status.ready},
            "server_metadata": self._server_metadata,
            "model_ready": lambda _: {"name": self._model.name, "ready": status.ready},
            "model_metadata": self._model_metadata,
            "model_statistics": lambda _: status.statistics(),
            "repository_index": self._index,
            "send_away": self._sent_away,
            "status": lambda _: {"status": status.everything()},
            "events": lambda a: shell.journal.since(a.since, a.limit),
            "plan_get": lambda _: status.plan(),
            "place_set": self._place_set,
            "crowded": self._crowded,
            "tuner_get": lambda _: {"tuner": description(shell.cores.tuning, time.monotonic())},
            "tuner_set": self._tuner_set,
        }

    def answer(self, request: OpRequest, reply: Reply) -> None:
        """Answer an operation; `plan_set`, taking a place down and `shadow` are answered when they are complete."""
        try:
            match request.arguments:
                case ops.Cancel(target=target):  # the frames' answers, CANCELLED, come later, in their streams' order
                    frames = reply.frames_of(target)
                    for frame in frames:
                        self._shell.post(FrameCancelled(frame), "a client cancels")
                    reply.send_fields({"cancelled": bool(frames)})
                case ops.ModelLoad() | ops.ModelUnload():
                    raise error_for(
                        Error.ONE_MODEL,
                        f"{request.op}: this daemon was started for {self._model.name!r} alone, "
                        "expected one of a folder or several models: shisha-rt serve FOLDER",
                    )
                case ops.Shadow(endpoint=endpoint, frames=frames):
                    self._shadow(endpoint, frames, reply)
                case ops.PlanSet(stages=stages):
                    self._plan_set(stages, reply)
                case ops.PlaceSet(down=True) as arguments:
                    self._take_down(arguments.place, reply)
                case arguments:
                    if request.op == "server_metadata":
                        self._gateway.follow(reply.client, reply.envelope)
                    reply.send_fields(self._answers[request.op](arguments))
        except ShishaError as error:
            reply.send_error(error)

    def drain(self) -> None:
        frames = self._shell.cores.lifecycle.frames
        if not frames.draining:
            self._shell.write(event_log.Draining(in_flight=self._shell.in_flight), "a signal")
            self._shell.post(Drain(), "a signal")

    @property
    def _machine(self) -> Machine:
        return self._status.machine

    # --- about the server and the model -----------------------------------------------------------------------

    def _server_metadata(self, _: object) -> Mapping[str, object]:
        return {
            "name": "shisha-rt",
            "version": __version__,
            "extensions": ["binary_tensor_data", "shared_memory", "streams", "plans"],
            "max_in_flight": self._gateway.limits.max_in_flight,
            "max_message_bytes": self._gateway.limits.max_message_bytes,
            "instance": self._status.instance,
            "shared_memory_socket": self._shared_memory,
        }

    def _index(self, arguments: ops.RepositoryIndex) -> Mapping[str, object]:
        ready = self._status.ready
        reason = "" if ready else "the daemon is starting or draining, or has lost a place"
        entry = {
            "name": self._model.name,
            "version": self._status.version,
            "state": "READY" if ready else "UNAVAILABLE",
            "reason": reason,
        }
        return {"models": [entry] if ready or not arguments.ready else []}

    def _sent_away(self, _: object) -> Mapping[str, object]:
        self._gateway.send_away()
        return {}

    def _shadow(self, endpoint: str, frames: int, reply: Reply) -> None:
        """Compare answers with another daemon of the same host process: its socket must lie in the same folder."""
        shadow, own = self._shell.shadow, self._gateway.endpoint
        if not own.startswith("ipc://") or Path(endpoint).parent != Path(own).parent:
            raise error_for(Error.MALFORMED_REQUEST, f"header at endpoint: {endpoint!r}; expected one beside {own}")
        if shadow.runs:
            raise error_for(Error.LOAD_FAILED, "answers are being compared already; ask again later")
        try:
            shadow.begin(endpoint, frames, lambda ends: reply.send_fields({"shadow": msgspec.structs.asdict(ends)}))
        except OSError as error:
            raise error_for(Error.LOAD_FAILED, f"no process could be started to compare: {error.strerror}") from None

    def _model_metadata(self, _: object) -> Mapping[str, object]:
        signature = self._gateway.signature
        several = {"shapes": [{tensor.name: tensor.shape for tensor in shape} for shape in signature.shapes]}
        return {
            "name": signature.model_name,
            "versions": [signature.version],
            "platform": "onnx",
            "inputs": [_tensor(tensor) for tensor in signature.inputs],
            "outputs": [_tensor(tensor) for tensor in signature.outputs],
            **(several if signature.shapes else {}),
            **({"most_frames": signature.most_frames} if signature.most_frames > 1 else {}),
            **({"one_frame": signature.one_frame} if signature.one_frame else {}),
        }

    # --- plans and places -------------------------------------------------------------------------------------

    def _plan_set(self, stages: Sequence[WrittenStage], reply: Reply) -> None:
        lifecycle = self._shell.cores.lifecycle
        if lifecycle.frames.draining:
            raise error_for(Error.DRAINING, "the daemon is draining and changes no plan")
        # Checked before the plan is built: building a very large one would block the loop.
        too_large = lifecycle.epochs.rules.too_large(stages)
        if too_large is not None:
            reply.send_fields({"epoch": None, "outcome": Ending.REFUSED.value, "reason": too_large})
            return

        def settled(end: Settled) -> None:
            reply.send_fields({"epoch": end.epoch, "outcome": end.ending.value, "reason": end.reason})

        self._shell.propose(read(stages), f"plan_set {reply.request_id}", settled)

    def _place_set(self, arguments: ops.PlaceSet) -> Mapping[str, object]:
        name, cause = arguments.place, "place_set"
        self._check_place(name)
        if arguments.speed is not None and arguments.device is not None:
            return self._set_device_speed(name, arguments.device, arguments.speed)
        if arguments.speed is not None:
            return self._set_speed(name, arguments.speed)
        self._check_may_run(name)
        was_available = self._shell.cores.lifecycle.places.by_name[name].available
        self._shell.releases.wanted(name)
        self._shell.write(event_log.PlaceBroughtUp(place=name), cause)
        self._shell.post(PlaceUp(name), cause)
        self._shell.repace(name)
        if not was_available:
            self._shell.post(PlaceReturned(name), cause)
        return {"place": name, "state": "up"}

    def _crowded(self, arguments: ops.Crowded) -> Mapping[str, object]:
        for name in arguments.places:
            self._check_place(name)
        self._shell.post(CrowdSeen(arguments.places), "crowded")
        return {}

    def _take_down(self, name: str, reply: Reply) -> None:
        """Take a place down; answer when it is released, or is brought up again before that."""
        self._check_place(name)
        self._check_may_run(name)
        if self._shell.cores.lifecycle.available == (name,):
            raise error_for(Error.LAST_PLACE, f"place: {name!r} is the last one left; bring another up first")

        def ended(released: bool) -> None:
            reply.send_fields({"place": name, "state": "down" if released else "up"})

        self._shell.releases.ask(name, ended)
        self._shell.write(event_log.PlaceTakenDown(place=name), "place_set")
        self._shell.post(PlaceDown(name), "place_set")
        if self._shell.cores.lifecycle.places.by_name[name].available:  # it became the last one left just now
            self._shell.write(event_log.PlaceBroughtUp(place=name), "place_set")
            self._shell.releases.wanted(name)
        self._shell.repace(name)

    def _check_place(self, name: str) -> None:
        known = self._shell.cores.lifecycle.places.by_name
        if name not in known:
            expected = ", ".join(known)
            raise error_for(Error.UNKNOWN_PLACE, f"place: the machine has no {name!r}; expected one of {expected}")

    def _check_may_run(self, name: str) -> None:
        share = self._status.share
        if name in share.released:
            raise error_for(Error.PLACE_RELEASED, f"place: {name!r} is released: {share.why}")

    def _set_speed(self, name: str, speed: float) -> Mapping[str, object]:
        """Set a place's speed, which its worker uses from the next frame on, as do later workers."""
        if speed > 1:
            raise error_for(Error.TOO_FAST, f"speed: {speed:g} is faster than this host; expected at most 1")
        shell, machine = self._shell, self._machine
        changed = machine.with_speed(name, speed, shell.cores.tuning.choice.filed.rank_at(name, speed))
        fault = next(core_faults(changed.places), None)
        if fault is not None:
            raise error_for(Error.CORES_OVERBOOKED, f"speed: {fault}")
        before = machine.place(name)
        shell.write(event_log.PlaceSpeed(place=name, speed=speed, before=before.speed), "place_set")
        shell.supervisor.arena.set_speed(machine.places.index(before), speed)
        shell.repace(name)
        for window in shell.telemetry.on_place(name):
            window.restart()
        shell.counting.gauge("shisha_place_speed_ratio").remove(*self._speed_labels(name))
        shell.post(MachineChanged(changed, f"the speed of {name} is {speed:g} now"), "place_set")
        self._show_speed(name)
        return {"place": name, "speed": speed}

    def _set_device_speed(self, name: str, device: str, speed: float) -> Mapping[str, object]:
        """Set a device's speed from the next frame on. As on a real device, the tuner learns of it by measuring."""
        known = [device.name for device in self._devices.get(name, ())]
        if device not in known:
            expected = f"one of {', '.join(known)}" if known else "none: it has no devices"
            raise error_for(Error.UNKNOWN_DEVICE, f"device: place {name!r} has no {device!r}; expected {expected}")
        if speed > 1:
            raise error_for(Error.TOO_FAST, f"speed: {speed:g} is faster than the device; expected at most 1")
        self._shell.write(event_log.DeviceSpeed(place=name, device=device, speed=speed), "place_set")
        index = self._machine.places.index(self._machine.place(name))
        self._shell.supervisor.arena.set_device_speed(index, known.index(device), speed)
        self._show_device_speed(name, device, speed)
        return {"place": name, "device": device, "speed": speed}

    def _show_speed(self, name: str) -> None:
        speed = self._shell.counting.gauge("shisha_place_speed_ratio")
        speed.labels(*self._speed_labels(name)).set(self._machine.place(name).speed)

    def _show_device_speed(self, place: str, device: str, speed: float) -> None:
        self._shell.counting.gauge("shisha_device_speed_ratio").labels(place, device).set(speed)

    def _speed_labels(self, name: str) -> tuple[str, str]:
        return name, str(self._status.is_emulated(self._machine.place(name))).lower()

    # --- the tuner --------------------------------------------------------------------------------------------

    def _tuner_set(self, arguments: ops.TunerSet) -> Mapping[str, object]:
        shell, tuning, cause = self._shell, self._shell.cores.tuning, "tuner_set"
        if tuning.options is None:
            raise error_for(Error.NO_TUNER, "the daemon was started without a tuner (strategy seed)")
        asks = arguments.pause or arguments.resume or arguments.restart
        if asks and shell.cores.lifecycle.live is None:
            raise error_for(Error.NOT_READY, "no plan is live yet; ask again when the daemon is ready")
        searches = arguments.restart or (arguments.resume and tuning.state is State.PAUSED)
        if arguments.strategy is not None or searches:
            self._check_strategy(arguments.strategy or tuning.strategy)
        asked = arguments.objective
        objective = None if asked is None else one_of("objective", asked, ANY_OBJECTIVES)
        if objective not in (None, "latency") and tuning.strategy in SCHEMES:
            raise error_for(Error.OBJECTIVE_UNFIT, f"objective: strategy {tuning.strategy!r} knows none but 'latency'")
        strategy = arguments.strategy or tuning.strategy
        not_guided = "" if strategy == "guided" else f"strategy {strategy!r} knows no energy; expected 'guided'"
        remains = tuning.choice.objective if objective is None else objective
        if remains == "energy" and (why := self._machine.why_no_energy or not_guided):
            raise error_for(Error.OBJECTIVE_UNFIT, f"objective: 'energy': {why}")
        shell.post(OptionsSet(arguments.strategy, arguments.alpha, objective), cause)
        if arguments.pause:
            shell.post(PauseAsked("a client has paused it"), cause)
        elif searches:
            shell.post(SearchAsked("a client has asked for it"), cause)
        return {"tuner": description(tuning, time.monotonic())}

    def _check_strategy(self, strategy: str) -> None:
        """Raise `ShishaError` if the daemon cannot use the strategy.

        A daemon that was started with a partitioning scheme can use schemes only; any other has no costs for schemes.
        """
        schedules = self._shell.cores.tuning.strategy in SCHEMES
        known: Sequence[str] = SCHEMES if schedules else LIVE
        if strategy not in known:
            expected = " or ".join(map(repr, known))
            if strategy in (*SCHEMES, *LIVE):
                why = f"strategy: {strategy!r} is not one that this daemon was started for"
                raise error_for(Error.STRATEGY_UNFIT, f"{why}; expected {expected}")
            raise error_for(Error.UNKNOWN_STRATEGY, f"strategy: {strategy!r} is unknown; expected {expected}")
        missing = _MISSING.get(self._shell.cores.tuning.choice.profiles)
        if strategy == "guided" and missing is not None:
            raise error_for(
                Error.STRATEGY_UNFIT, f"strategy: 'guided' needs measured costs, and {missing}; expected 'shisha'"
            )


def _tensor(tensor: Tensor) -> dict[str, object]:
    """A tensor as metadata has it: sizes that vary are -1; `made_up` is there where any other number may not run."""
    made_up = {"made_up": tensor.made_up} if tensor.made_up else {}
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.sizes, **made_up}
