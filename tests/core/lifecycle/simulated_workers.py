"""Worker processes and the arena they share, as they really are: the lifecycle only knows what it was told.

A tensor in the arena is the tag `(frame, epoch, attempt)` of what made it. A worker may write the slot of a part that
it was given at any time until it is dead, and it dies when the world says so, not when the daemon asks for it. So a
slot that is filled while a live worker still has a part in it is a broken promise, and so is a tensor that is read
before it is done: until then it is half of one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.plan.plan import Plan
from tests.core.lifecycle.random_plans import CHAIN, LAYERS, Needs

INPUT: Final = -1
HALF: Final = -1

Tag = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Process:
    """A worker as it really is. `building`, `loaded`: stages, by epoch and index. `slow`: it seldom gets anywhere."""

    incarnation: int
    place: str
    slow: bool
    alive: bool = True
    ready: bool = False
    hung: bool = False
    doomed: bool = False
    building: deque[tuple[int, int]] = field(default_factory=deque)
    loaded: set[tuple[int, int]] = field(default_factory=set)
    parts: deque[ev.Descriptor] = field(default_factory=deque)  # the first is running if `running`
    running: bool = False
    last_frame: int | None = None


def tasks(run: ev.Descriptor) -> list[ev.Descriptor]:
    """What a run computes, each frame as if it were alone."""
    others = (run._replace(frame=o.frame, attempt=o.attempt, slot=o.slot, beside=()) for o in run.beside)
    return [run._replace(beside=()), *others]


class Workers:
    """All processes that were ever started. What they say is appended to `messages`, for the world to deliver.

    `copies`: whether a part reads, and writes, what its client lends; `written`: frames whose outputs are there.
    `needs`: what the layers read. `poison`: the layers of a frame that end whoever computes them. `layer_s`: what a
    layer takes, by place; nothing is told of the others. `run_s`: what a run takes beside its frames. `unequal`: some
    of them are slow. `crashes`: says which deaths are their own; None: none of them.
    """

    def __init__(self, rng: random.Random, slot_count: int, plans: dict[int, Plan], needs: Needs = CHAIN) -> None:
        self.rng = rng
        self.plans = plans
        self.needs = needs
        self.healing = self.unequal = False
        self.crashes: random.Random | None = None
        self.poison: dict[int, set[int]] = {}
        self.layer_s: dict[str, float] = {}
        self.run_s = 0.0
        self.processes: dict[int, Process] = {}
        self.messages: list[ev.Event] = []
        self.owner: list[int | None] = [None] * slot_count
        self.arena: list[dict[int, Tag]] = [{} for _ in range(slot_count)]
        self.copies: dict[ev.Descriptor, tuple[bool, bool]] = {}  # by task
        self.batches: dict[tuple[int, int], int] = {}
        self.written: set[int] = set()

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes.values() if process.alive]

    # --- what workers do --------------------------------------------------------------------------------------

    def some_process(self) -> Process | None:
        alive = self.alive
        return self.rng.choice(alive) if alive else None

    def let_work(self) -> None:
        process = self.some_process()
        if process is not None and not process.hung and not (process.slow and self.rng.random() < 0.8):
            self.work(process)

    def work(self, process: Process) -> None:
        """One step of a worker: die if it was killed, come up, build a segment, begin a part, or finish it."""
        rng = self.rng
        if process.doomed and (self.healing or rng.random() < 0.5):
            self.end(process)
        elif not process.ready:
            process.ready = True
            self.messages.append(ev.WorkerReady(process.incarnation))
        elif process.building and (not process.parts or rng.random() < 0.5):
            epoch, stage = key = process.building.popleft()
            own = sum(process.place in other.leads for other in self.plans[epoch].stages)
            if not self.healing and rng.random() < 0.1 / own:
                self.messages.append(ev.StageFailed(epoch, stage, process.incarnation, "out of memory"))
                return
            process.loaded.add(key)
            alone = self.batches[key] > 1 and not self.healing and rng.random() < 0.1
            self.messages.append(ev.StagePrepared(epoch, stage, process.incarnation, "they differ" if alone else ""))
        elif process.running:
            self._finish(process)
        elif process.parts:
            process.running, run = True, process.parts[0]
            process.last_frame = run.frame
            for part in tasks(run):
                if self.copies[part][0] and self.rng.random() < 0.9:  # else it dies before it has
                    self.read_lent(part.slot)
                elif self.copies[part][0]:
                    self.end(process)
                    return
            for part in tasks(run):
                self._read(process, part)
            layers = set(self.plans[run.epoch].stages[run.stage].layers)
            if any(not self.poison.get(frame, set()).isdisjoint(layers) for frame in run.frames):
                self.end(process)

    def _finish(self, process: Process) -> None:
        rng, run = self.rng, process.parts.popleft()
        for part in tasks(run):
            self._write(part, part.attempt)
            if self.copies[part][1]:
                self.written.add(part.frame)
        process.running = False
        failed = not self.healing and rng.random() < 0.04
        layers = self.plans[run.epoch].stages[run.stage].layer_count
        service_s = layers * self.layer_s.get(process.place, 0.0) * len(run.frames)
        service_s += self.run_s if service_s else 0.0
        reply: ev.Event = ev.PartFailed(run, "the engine raised") if failed else ev.PartDone(run, service_s)
        self.messages.extend([reply] * (2 if rng.random() < 0.05 else 1))

    def hang(self) -> Process | None:
        process = self.some_process()
        if process is not None:
            process.hung = True
        return process

    def scribble(self) -> None:
        """A worker that hangs, or is about to be killed, writes some of the output of a part that it has."""
        process = self.some_process()
        if process is not None and process.parts:
            self._write(self.rng.choice(tasks(self.rng.choice(process.parts))), HALF)

    def die(self) -> None:
        """A process ends: killed by the daemon, by its own fault, or after its work was done but not yet answered."""
        process = self.some_process()
        if process is not None:
            self.end(process)

    def end(self, process: Process) -> None:
        process.alive = False
        running = process.parts[0].frame if process.running else None
        if running is None and self.rng.random() < 0.2:
            running = process.last_frame  # finished, but its note in shared memory had not been wiped
        crashed = self.crashes is not None and not process.doomed and self.crashes.random() < 0.5
        self.messages.append(ev.WorkerGone(process.incarnation, running, "killed", crashed=crashed))

    # --- the arena --------------------------------------------------------------------------------------------

    def _read(self, process: Process, part: ev.Descriptor) -> None:
        assert (part.epoch, part.stage) in process.loaded, f"{part} reached a worker that has not loaded its stage"
        layers = set(self.plans[part.epoch].stages[part.stage].layers)
        for layer in sorted(layers):
            for read in sorted(self.needs[layer] - layers) if self.needs[layer] else [INPUT]:
                expected = self._tag(part) if read != INPUT else (part.frame, 0, 0)
                actual = self.arena[part.slot].get(read)
                assert actual == expected, f"{part} reads {actual} from layer {read}, should be {expected}"

    def _write(self, part: ev.Descriptor, attempt: int) -> None:
        """Write this part's output. Its worker still has it, so its slot must still be its frame's."""
        assert self.owner[part.slot] == part.frame, f"{part} is written into the slot of frame {self.owner[part.slot]}"
        plan = self.plans[part.epoch]
        for layer in self._passed(plan, part.stage) | (self._ends & set(plan.stages[part.stage].layers)):
            self.arena[part.slot][layer] = part.frame, part.epoch, attempt

    def _tag(self, part: ev.Descriptor) -> Tag:
        return part.frame, part.epoch, part.attempt

    @property
    def _ends(self) -> frozenset[int]:
        """The layers whose output is the network's."""
        return frozenset(range(LAYERS)).difference(*self.needs)

    def _passed(self, plan: Plan, stage: int) -> set[int]:
        """The layers of a stage that others read."""
        layers = set(plan.stages[stage].layers)
        return layers.intersection(
            *[set().union(*(self.needs[layer] for layer in range(LAYERS) if layer not in layers))]
        )

    def passing(self, plan: Plan) -> set[str]:
        """The tensors that stages of `plan` pass to each other, by name."""
        return {str(layer) for stage in range(len(plan.stages)) for layer in self._passed(plan, stage)}

    def punch(self, names: Iterable[str]) -> None:
        """Take these tensors out of every slot."""
        for name in names:
            for slot in self.arena:
                slot.pop(int(name), None)

    def fill(self, fill: do.Fill, *, lent: bool) -> None:
        """`lent`: the input is not in the slot by that."""
        for process in self.alive:
            for part in process.parts:
                assert fill.slot not in part.slots, f"slot {fill.slot} is filled, a live worker still has {part}"
        self.owner[fill.slot] = fill.frame
        self.arena[fill.slot].pop(INPUT, None)
        if not lent:
            self.arena[fill.slot][INPUT] = fill.frame, 0, 0

    def read_lent(self, slot: int) -> None:
        frame = self.owner[slot]
        assert frame is not None
        self.arena[slot][INPUT] = frame, 0, 0

    def may_write(self, frame: int) -> bool:
        """Whether some live worker has a part at whose end it writes to what the frame's client lends."""
        having = (part for process in self.alive for run in process.parts for part in tasks(run))
        return any(part.frame == frame and self.copies[part][1] for part in having)

    def answer(self, slot: int) -> set[Tag | None]:
        """What has made the network's outputs."""
        return {self.arena[slot].get(layer) for layer in self._ends}

    # --- what the daemon has them do --------------------------------------------------------------------------

    def start(self, start: do.Start, *, fails: bool = False) -> None:
        """`fails`: there is no process or descriptor to be had."""
        assert start.incarnation > max(self.processes, default=0), f"incarnation {start.incarnation} is not new"
        twin = [process for process in self.processes.values() if process.alive and process.place == start.place]
        assert not twin, f"{start.place} gets a second process while {twin[0].incarnation} lives"
        slow = self.unequal and self.rng.random() < 0.1
        self.processes[start.incarnation] = Process(start.incarnation, start.place, slow, alive=not fails)
        if fails:
            self.messages.append(ev.WorkerGone(start.incarnation, None, "no descriptors", started=False))

    def doom(self, kill: do.Kill) -> None:
        process = self.processes[kill.incarnation]
        assert not process.doomed, f"worker {kill.incarnation} is killed twice"
        process.doomed = True

    def give(self, run: do.RunPart) -> None:
        part = run.descriptor
        process = self.processes[part.incarnation]
        assert not process.doomed, f"{part} is given to a worker that is to be killed"
        assert (part.epoch, part.stage) in process.loaded, f"{part} is given to a worker that has not loaded its stage"
        of_each: tuple[do.RunPart | do.Shared, ...] = (run, *run.beside)
        for task, copies in zip(tasks(part), of_each, strict=True):
            assert self.owner[task.slot] == task.frame, f"{part} is of a slot that frame {self.owner[task.slot]} has"
            self.copies[task] = copies.reads, copies.writes
        if process.alive:
            process.parts.append(part)

    def prepare(self, prepare: do.PrepareStage) -> None:
        process = self.processes[prepare.incarnation]
        stage, key = self.plans[prepare.epoch].stages[prepare.stage], (prepare.epoch, prepare.stage)
        assert prepare.team in stage.teams, f"{prepare}, its stage is on {stage.teams}"
        assert prepare.team[0] == process.place, f"{prepare} goes to {process.place}"
        assert key not in process.loaded, f"{prepare}, which is loaded"
        assert key not in process.building, f"{prepare}, which is being built"
        assert self.batches.setdefault(key, prepare.batch) == prepare.batch, f"{prepare}, elsewhere of other runs"
        process.building.append(key)

    def retire(self, retire: do.RetireEpoch) -> None:
        process = self.processes[retire.incarnation]
        if process.alive:
            using = [part for part in process.parts if part.epoch == retire.epoch]
            assert not using, f"epoch {retire.epoch} is retired under {using}"
        process.loaded = {key for key in process.loaded if key[0] != retire.epoch}
        process.building = deque(key for key in process.building if key[0] != retire.epoch)
