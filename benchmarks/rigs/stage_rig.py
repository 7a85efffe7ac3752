"""Single stages: the product's own workers, driven without a daemon, lifecycle or queues between stages.

A worker does exactly the same for a frame as in a pipeline; only the sender of descriptors differs. Many parts are
queued at each worker and answers are read now and then, so the driver uses almost no time of the measured cores.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from shisha_rt.cli.drive.frames import random_frames
from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.daemon.fleet.far_places import FarPlaces
from shisha_rt.daemon.fleet.supervisor import Supervisor
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.messages import worker as messages
from shisha_rt.process.arena import Arena
from shisha_rt.process.budgets import Budgets
from shisha_rt.process.layout import layouts_of

NO_DEVICES: Final[Mapping[str, tuple[Device, ...]]] = {}

_Message = TypeVar("_Message", bound=messages.FromWorker)

_START_S: Final = 60.0
_FRAME_S: Final = 10.0
_QUEUED_PARTS: Final = 64  # at each worker: far more than it finishes in one rest, far fewer than a channel holds
_REST_S: Final = 0.02
_GLANCE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Loaded:
    """Layers `first` to `last`, built on a worker. `prepared`: its build time and memory."""

    worker: int
    epoch: int
    first: int
    last: int
    prepared: messages.Prepared


@dataclass(frozen=True, slots=True)
class Rate:
    """`frame_s`: wall time per frame at saturation. `service_s`: median service time of the worker.

    `cpu_s`: mean CPU time of the engine, over the frames of `frame_s`.
    """

    frame_s: float
    service_s: float
    cpu_s: float


def _rate(parts: Sequence[messages.Done]) -> Rate:
    """The rate from the end of the first part to the end of the last, by the worker's clock: each part has the time
    since the one before it, so the sum is wall time even if answers are read late.
    """
    counted = parts[1:]
    return Rate(
        statistics.fmean(done.waited_s + done.service_s for done in counted),
        statistics.median(done.service_s for done in parts),
        statistics.fmean(done.cpu_s for done in counted),
    )


class StageRig:
    """One worker for each place. Open it with `stage_rig`, from the main thread."""

    def __init__(self, arena: Arena, poller: Poller, supervisor: Supervisor, machine: Machine) -> None:
        self._arena = arena
        self._link = supervisor.link
        self._epochs = itertools.count(1)
        self._frames = itertools.count()
        self._poller = poller
        self._said: deque[object] = deque()
        for worker, place in enumerate(machine.places):
            supervisor.start(place.name, incarnation=worker)
        for _ in machine.places:
            self._expect(messages.Ready, _START_S)

    def fill(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Put a frame's inputs, by name, into every slot."""
        for slot in range(self._arena.slot_count):
            for name, array in inputs.items():
                self._arena.view(slot, self._arena.layout.regions[name])[...] = array

    def load(self, worker: int, first: int, last: int, placement: Sequence[str] = ()) -> Loaded:
        """Build and warm a stage, and run it once on every slot, so that later stages find real tensors there.

        If the worker's place has devices, `placement` names the device of each of the stage's operators.
        """
        epoch = next(self._epochs)
        self._link.send(worker, messages.Prepare(epoch, 0, ((first, last),), placement=tuple(placement)))
        loaded = Loaded(worker, epoch, first, last, self._expect(messages.Prepared, _START_S))
        for slot in range(self._arena.slot_count):
            self._send(loaded, slot)
        for _ in range(self._arena.slot_count):
            self._expect(messages.Done, _FRAME_S)
        return loaded

    def unload(self, loaded: Loaded) -> None:
        self._link.send(loaded.worker, messages.Retire(loaded.epoch))

    def saturate(self, stages: Sequence[Loaded], expected_s: Sequence[float], seconds: float) -> list[Rate]:
        """Run all of `stages` (on different workers) at once for about `seconds`, without waiting for each other.

        `expected_s`: time per frame of each, so that all end at about the same time. Stages start on different slots,
        as in a pipeline, where a stage reads what another wrote some frames earlier.
        """
        counts = [max(2, round(seconds / expected)) for expected in expected_s]
        slots = self._arena.slot_count
        turns = {}
        for i, (stage, count) in enumerate(zip(stages, counts, strict=True)):
            offset = i * slots // len(stages)
            turns[stage.worker] = iter([(stage, (turn + offset) % slots) for turn in range(count)])
        for _ in range(_QUEUED_PARTS):
            for worker in turns:
                self._send_next(turns[worker])
        parts: dict[int, list[messages.Done]] = {stage.worker: [] for stage in stages}
        for _ in range(sum(counts)):
            if not self._said:
                time.sleep(_REST_S)  # so that reading answers uses almost nothing of a stage's core
                self._hear_all()
            done = self._expect(messages.Done, _FRAME_S)
            parts[done.part.incarnation].append(done)
            self._send_next(turns[done.part.incarnation])
        return [_rate(parts[stage.worker]) for stage in stages]

    def _hear_all(self) -> None:
        """Read all messages; a turn of the poller returns only a few, and a worker's queue must not become empty."""
        while said := list(self._poller.poll(0.0)):
            self._said.extend(said)

    def _send_next(self, turns: Iterator[tuple[Loaded, int]]) -> None:
        for stage, slot in itertools.islice(turns, 1):
            self._send(stage, slot)

    def alone(self, stage: Loaded, seconds: float) -> Rate:
        """Run one stage with no other load on the machine, for about `seconds`, after a short run for an estimate."""
        estimate = self.saturate([stage], [seconds], seconds=0.0)[0].service_s
        return self.saturate([stage], [estimate], seconds)[0]

    def at_once(self, stages: Sequence[Loaded], seconds: float) -> list[Rate]:
        """Run all stages at once, after a first round that estimates how many frames each will compute."""
        glance = self.saturate(stages, [self.alone(stage, _GLANCE_S).frame_s for stage in stages], seconds / 10)
        return self.saturate(stages, [rate.frame_s for rate in glance], seconds)

    def _send(self, stage: Loaded, slot: int) -> None:
        run = messages.Run(Descriptor(stage.worker, next(self._frames), 0, 0, stage.epoch, slot), 0)
        self._link.send(stage.worker, run)

    def _expect(self, kind: type[_Message], timeout_s: float) -> _Message:
        """The next message, which must be of this kind."""
        until_s = time.monotonic() + timeout_s
        while not self._said:
            if time.monotonic() > until_s:
                raise TimeoutError(f"no {kind.__name__} from any worker within {timeout_s:g} s")
            self._said.extend(self._poller.poll(timeout_s))
        message = self._said.popleft()
        if not isinstance(message, kind):
            raise RuntimeError(f"expected {kind.__name__} from a worker, got {message}")
        return message


@contextmanager
def stage_rig(
    compiled: Compiled, machine: Machine, slot_count: int, devices: Mapping[str, tuple[Device, ...]] = NO_DEVICES
) -> Iterator[StageRig]:
    """Context with the workers of `machine` on an arena like a daemon's.

    `devices`: of each place, by name; the model must then be compiled `plain`.
    """
    with ExitStack() as closing:
        closed: Callable[[Callable[[], None]], object] = closing.callback
        poller = Poller()
        closed(poller.close)
        arena = Arena.create(layouts_of([compiled.index.tensors]), slot_count, len(machine.places))
        closed(arena.close)
        budgets = Budgets([m.name for m in machine.memories if m.bandwidth_bytes_per_s is not None])
        closed(budgets.close)
        costs = {
            place: OperatorCosts(place_devices, np.empty((0, len(place_devices))))
            for place, place_devices in devices.items()
        }
        ready = ModelOnMachine(compiled, machine, costs)
        supervisor = Supervisor(ready, arena, budgets, poller, FarPlaces(None, poller))
        closed(supervisor.close)
        rig = StageRig(arena, poller, supervisor, machine)
        rig.fill(random_inputs(compiled, seed=0))
        yield rig


def random_inputs(compiled: Compiled, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """One frame of random values that fit the model, as by `random_frames`."""
    (frame,) = random_frames(compiled.model.graph.inputs, 1, seed)
    return dict(frame)
