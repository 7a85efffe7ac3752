"""Worker processes and the arena they share, as they really are: the lifecycle only knows what it was told.

A tensor in the arena is the tag `(frame, ((epoch, stage), ...))` of all that went into it. A worker may write the
slot of a part that it was given at any time until it is dead, and it dies when the world says so, not when the
daemon asks for it. So a slot that is filled while a live worker still has a part in it is a broken promise.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle import instructions as do
from shisha_rt.plan.plan import Plan

LAYERS: Final = 5

Tag = tuple[int, tuple[tuple[int, int], ...]]


@dataclass(slots=True, eq=False)
class Process:
    """A worker as it really is: the lifecycle only knows what it was told of it."""

    incarnation: int
    place: str
    alive: bool = True
    ready: bool = False
    hung: bool = False
    doomed: bool = False
    building: deque[int] = field(default_factory=deque)
    loaded: set[int] = field(default_factory=set)
    parts: deque[ev.Descriptor] = field(default_factory=deque)  # the first is running if `running`
    running: bool = False
    last_frame: int | None = None


class Workers:
    """All processes that were ever started. What they say is appended to `messages`, for the world to deliver."""

    def __init__(self, rng: random.Random, slot_count: int, plans: dict[int, Plan]) -> None:
        self.rng = rng
        self.plans = plans
        self.healing = False
        self.processes: dict[int, Process] = {}
        self.messages: list[ev.Event] = []
        self.owner: list[int | None] = [None] * slot_count
        self.arena: list[dict[int, Tag]] = [{} for _ in range(slot_count)]

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes.values() if process.alive]

    # --- what workers do --------------------------------------------------------------------------------------

    def some_process(self) -> Process | None:
        alive = self.alive
        return self.rng.choice(alive) if alive else None

    def let_work(self) -> None:
        process = self.some_process()
        if process is not None and not process.hung:
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
            epoch = process.building.popleft()
            if not self.healing and rng.random() < 0.1:
                self.messages.append(ev.StageFailed(epoch, process.incarnation, "out of memory"))
                return
            process.loaded.add(epoch)
            self.messages.append(ev.StagePrepared(epoch, process.incarnation))
        elif process.running:
            part = process.parts.popleft()
            self._write(part)
            process.running = False
            failed = not self.healing and rng.random() < 0.04
            reply: ev.Event = ev.PartFailed(part, "the engine raised") if failed else ev.PartDone(part)
            self.messages.extend([reply] * (2 if rng.random() < 0.05 else 1))
        elif process.parts:
            process.running = True
            process.last_frame = process.parts[0].frame
            self._read(process, process.parts[0])

    def hang(self) -> Process | None:
        process = self.some_process()
        if process is not None:
            process.hung = True
        return process

    def scribble(self) -> None:
        """A worker that hangs, or is about to be killed, writes the output of some part that it has."""
        process = self.some_process()
        if process is not None and process.parts:
            self._write(self.rng.choice(process.parts))

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
        self.messages.append(ev.WorkerGone(process.incarnation, running, "killed"))

    # --- the arena --------------------------------------------------------------------------------------------

    def _read(self, process: Process, part: ev.Descriptor) -> None:
        assert part.epoch in process.loaded, f"{part} reached a worker that has not loaded its epoch"
        stage = self.plans[part.epoch].stages[part.stage]
        expected = (part.frame, tuple((part.epoch, earlier) for earlier in range(part.stage)))
        found = self.arena[part.slot].get(stage.first)
        assert found == expected, f"{part} reads {found} at cut {stage.first}, should be {expected}"

    def _write(self, part: ev.Descriptor) -> None:
        """Write this part's output. Its worker still has it, so its slot must still be its frame's."""
        assert self.owner[part.slot] == part.frame, f"{part} is written into the slot of frame {self.owner[part.slot]}"
        stage = self.plans[part.epoch].stages[part.stage]
        steps = tuple((part.epoch, done) for done in range(part.stage + 1))
        self.arena[part.slot][stage.last + 1] = (part.frame, steps)

    def fill(self, fill: do.Fill) -> None:
        for process in self.alive:
            for part in process.parts:
                assert part.slot != fill.slot, f"slot {fill.slot} is filled, a live worker still has {part}"
        self.owner[fill.slot] = fill.frame
        self.arena[fill.slot][0] = (fill.frame, ())

    def answer(self, slot: int) -> Tag | None:
        return self.arena[slot].get(LAYERS)

    # --- what the daemon has them do --------------------------------------------------------------------------

    def start(self, start: do.Start, *, fails: bool = False) -> None:
        """`fails`: there is no process or descriptor to be had."""
        assert start.incarnation > max(self.processes, default=0), f"incarnation {start.incarnation} is not new"
        twin = [one for one in self.processes.values() if one.alive and one.place == start.place]
        assert not twin, f"{start.place} gets a second process while {twin[0].incarnation} lives"
        self.processes[start.incarnation] = Process(start.incarnation, start.place, alive=not fails)
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
        assert part.epoch in process.loaded, f"{part} is given to a worker that has not loaded its epoch"
        assert self.owner[part.slot] == part.frame, f"{part} is of a slot that frame {self.owner[part.slot]} has"
        if process.alive:
            process.parts.append(part)

    def prepare(self, prepare: do.PrepareStage) -> None:
        process = self.processes[prepare.incarnation]
        stage = self.plans[prepare.epoch].stages[prepare.stage]
        assert stage.place == process.place, f"{prepare} goes to {process.place}, its stage is on {stage.place}"
        assert prepare.epoch not in process.loaded, f"{prepare}, which is loaded"
        assert prepare.epoch not in process.building, f"{prepare}, which is being built"
        process.building.append(prepare.epoch)

    def retire(self, retire: do.RetireEpoch) -> None:
        process = self.processes[retire.incarnation]
        if process.alive:
            using = [part for part in process.parts if part.epoch == retire.epoch]
            assert not using, f"epoch {retire.epoch} is retired under {using}"
        process.loaded.discard(retire.epoch)
        if retire.epoch in process.building:
            process.building.remove(retire.epoch)
