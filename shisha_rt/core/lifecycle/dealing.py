"""Which team gets which part next: the queues of the pools.

A pool has one queue in each epoch, in the order in which frames were given their slots. Dealing is breadth first: no
team gets a second part while another of its pool that can take it has none. Then the team gets it that will be done
first. Only in a pool of one stage may teams differ in speed. There a slower team has only as many frames as it computes
before the faster ones would have done with all others.

A frame that is charged with a death goes only to the team where it happened: else it could end every copy in turn. It
is dealt only while another team of the pool serves and has no charged frame: else a few such frames, run again side by
side, would leave no team for all other frames. While there is such a team, no other frame is dealt to a team that has a
charged one: it would wait for as long as the charged one hangs.

With batches (`Epoch.batches`), an idle team takes only its share of the ready parts, their number over that of idle
teams, so that no team idles while another has all parts. A team's second batch is dealt when it is full or the first is
nearly done: until then more frames may come. An idle team waits for more frames while these are likely to come soon
enough (`batch_filling.py`), and for `Policy.batch_delay_s`. In a superseded epoch nothing waits: full batches of the
newest one would be dealt before it for as long as frames come. A frame that is charged or suspected runs alone.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.batch_filling import Returns
from shisha_rt.core.lifecycle.epochs import Epochs
from shisha_rt.core.lifecycle.events import Beside, Descriptor
from shisha_rt.core.lifecycle.places import Places
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.records import Epoch, Frame, PoolState, QueuedPart, WorkerState
from shisha_rt.core.lifecycle.streams import Streams

_ALIKE: Final = 1.2
"""Teams whose times differ by less than this factor count as alike: so much is noise on a busy host."""
_SMOOTHING: Final = 0.2
"""Weight of the newest part in the moving average of a team's times."""
_NEARLY: Final = 0.8
"""A batch is nearly done after this fraction of its predicted time."""


class Dealing:
    """Deals ready parts to workers, and takes them back.

    `wake_s`: when an idle team's wait for more frames ends. `charged`: charged or suspected frames, which may end a
    worker. `returns`: when frames come after answers.
    """

    def __init__(
        self, places: Places, epochs: Epochs, streams: Streams, policy: Policy, emit: Callable[[do.Instruction], None]
    ) -> None:
        self.places = places
        self.epochs = epochs
        self.streams = streams
        self._policy = policy
        self._emit = emit
        self.wake_s = math.inf
        self.charged: set[int] = set()
        self.returns = Returns()

    def queue(self, frame: Frame, stage: int, now: float) -> None:
        """Queue a part that is ready or has to run again, behind those of frames that were given slots earlier."""
        assert frame.epoch is not None
        insort(frame.epoch.pool_of[stage].queue, (frame.turn, stage, now, frame))

    def drop(self, frame: Frame) -> None:
        """Remove all queued parts of the frame."""
        assert frame.epoch is not None
        for pool in frame.epoch.pools:
            if any(entry[3] is frame for entry in pool.queue):
                pool.queue[:] = [entry for entry in pool.queue if entry[3] is not frame]

    def queued(self, number: int) -> Mapping[int, int]:
        """Map each stage to the number of parts of an epoch that wait for a worker or are with one."""
        epoch = self.epochs.live.get(number)
        waiting = [] if epoch is None else [part[1] for pool in epoch.pools for part in pool.queue]
        out = (part for worker in self.places.workers.values() for part in worker.out)
        return Counter([*waiting, *(part.stage for part in out if part.epoch == number for _ in part.frames)])

    def dispatch(self, now: float) -> None:
        """Deal queued parts, frames of the older epoch first."""
        self.wake_s = math.inf
        for epoch in self.epochs.live.values():
            for pool in epoch.pools:
                if pool.queue and not self.epochs.is_broken(epoch):
                    self._deal(epoch, pool, now)

    def _deal(self, epoch: Epoch, pool: PoolState, now: float) -> None:
        depth, queue, at = self._policy.descriptors_per_worker, pool.queue, 0
        free = self._free(pool)
        if not free:
            return
        declined = set()  # stages of which no worker takes a part now, except parts of charged frames
        while free and at < len(queue):
            _, stage, _, frame = queue[at]
            worker, run = None, None
            if stage not in declined or frame.died_on is not None:
                worker = self._taker(frame, stage, epoch, pool, free)
            if worker is not None:
                run = self._run_from(pool, at, epoch, worker, now)
            if worker is None or run is None:
                at += 1
                if frame.died_on is None:
                    declined.add(stage)
                continue
            self._run(run, stage, epoch, worker, now)
            if len(worker.out) >= depth:
                free.remove(worker)

    def _run_from(
        self, pool: PoolState, at: int, epoch: Epoch, worker: WorkerState, now: float
    ) -> list[QueuedPart] | None:
        """Take the part at position `at` from the queue, and those that share its batch; None: it waits for more."""
        queue = pool.queue
        _, stage, ready_s, frame = queue[at]
        most = epoch.batches[stage]
        if most > 1 and len(pool.leads) > 1 and len(pool.stages) == 1:
            most = min(most, self._most_frames(worker, stage, epoch, pool))
        if most <= 1 or frame.died_on is not None:
            return [queue.pop(at)]
        teams = 1 if worker.out else self._idle(epoch, stage, pool)
        alike = _alike(queue, at, most * teams)
        share = -(-len(alike) // teams)
        if len(alike) < most and epoch is self.epochs.newest:
            if worker.out and now < worker.refill_s:
                self._wait(worker.refill_s)
                return None
            worth_s = epoch.run_times[stage].worth_waiting_s(worker.place) if stage in epoch.first else 0.0
            filled_by_s = math.inf if worker.out else max(ready_s, worker.idle_s) + worth_s
            if worth_s and now < filled_by_s:
                filled, takes_s = self.returns.filled(len(alike), _frames_out(worker), teams, most, now)
                share = filled if takes_s <= worth_s else share
                if share > len(alike):
                    self._wait(filled_by_s)
                    return None
            if not worker.out and now < ready_s + self._policy.batch_delay_s:
                self._wait(ready_s + self._policy.batch_delay_s)
                return None
        taken = alike[:share]
        run = [queue[position] for position in taken]
        for position in reversed(taken):
            del queue[position]
        run.sort(key=_slot)
        return run

    def _wait(self, until_s: float) -> None:
        """Have `dispatch` called again at `until_s`, if nothing else happens before."""
        self.wake_s = min(self.wake_s, until_s)

    def _idle(self, epoch: Epoch, stage: int, pool: PoolState) -> int:
        """How many idle teams could take a part of this stage; at least 1."""
        key, down = (epoch.number, stage), self.places.down
        return max(1, sum(not w.out and key in w.loaded and w.place not in down for w in self._free(pool)))

    def _free(self, pool: PoolState) -> list[WorkerState]:
        """The pool's workers that may be dealt a part, in its order. Under load they are few, even of thousands."""
        roomy, places = self.places.roomy, pool.at
        if len(roomy) < len(places):
            workers = [worker for name, worker in roomy.items() if name in places]
            if len(workers) > 1:
                workers.sort(key=lambda worker: places[worker.place])
            return workers
        return [worker for name in pool.leads if (worker := roomy.get(name)) is not None]

    def _taker(
        self, frame: Frame, stage: int, epoch: Epoch, pool: PoolState, free: list[WorkerState]
    ) -> WorkerState | None:
        """The worker, of those in `free`, that gets this part now; None if none of them does."""
        key, leads = (epoch.number, stage), pool.leads
        if len(leads) == 1:
            return free[0] if key in free[0].loaded else None
        able = [worker for worker in free if key in worker.loaded]
        if frame.died_on is not None:
            able = [worker for worker in able if self._can_spare(worker.place, key, leads)]
        elif self.charged and any(_is_charged(worker) for worker in able):
            able = [w for w in able if not (_is_charged(w) and self._is_safe_elsewhere(w.place, key, leads))]
        if frame.died_on in leads and frame.died_on not in self.places.lost:
            return next((worker for worker in able if worker.place == frame.died_on), None)
        down = self.places.down
        if down and not down.issuperset(leads):
            able = [worker for worker in able if worker.place not in down]
        if len(pool.stages) > 1:
            return min(able, key=lambda worker: (len(worker.out), _busy_until_s(worker)), default=None)
        return self._quickest(able, stage, epoch, pool)

    def _can_spare(self, place: str, key: tuple[int, int], leads: tuple[str, ...]) -> bool:
        """Whether other frames can go on in the pool if the place's worker dies; also True if the pool has no other."""
        places = self.places
        others = (lead for lead in leads if lead != place and lead not in places.lost and lead not in places.down)
        return not any(others) or self._is_safe_elsewhere(place, key, leads)

    def _is_safe_elsewhere(self, place: str, key: tuple[int, int], leads: tuple[str, ...]) -> bool:
        """Whether another place of the pool has this stage loaded, and has no frame that may end its worker."""
        places = self.places
        others = (places.serving[lead] for lead in leads if lead != place and lead in places.serving)
        usual = (worker for worker in others if worker.place not in places.lost and worker.place not in places.down)
        return any(key in worker.loaded and not _is_charged(worker) for worker in usual)

    def _quickest(self, able: list[WorkerState], stage: int, epoch: Epoch, pool: PoolState) -> WorkerState | None:
        """Return the worker that takes the part: of those with the fewest parts, that which is done with it first. None
        if none takes it.

        A worker that may have no more frames is passed over, and so is every slower one.
        """
        service_s, quick_s, declined_s = epoch.service_s[stage], epoch.quick_s[stage], math.inf
        if len(able) > 1:
            able.sort(key=lambda worker: (len(worker.out), _busy_until_s(worker) + service_s.get(worker.place, 0.0)))
        for worker in able:
            takes_s = service_s.get(worker.place, 0.0)
            if takes_s <= quick_s:
                return worker
            if takes_s < declined_s:
                if self._most_frames(worker, stage, epoch, pool):
                    return worker
                declined_s = takes_s
        return None

    def _most_frames(self, worker: WorkerState, stage: int, epoch: Epoch, pool: PoolState) -> int:
        """How many more frames a worker computes in less time than the faster teams of its pool need for all others."""
        takes_s = epoch.service_s[stage].get(worker.place, 0.0)
        if takes_s <= epoch.quick_s[stage]:
            return epoch.batches[stage]
        frames, frames_per_s = len(pool.queue), 0.0
        for lead, team_s in epoch.service_s[stage].items():
            other = self.places.serving.get(lead)
            if team_s * _ALIKE >= takes_s or other is None or lead in self.places.down:
                continue
            if self.charged and _is_charged(other):  # no other frame is dealt to it
                continue
            if (epoch.number, stage) in other.loaded:
                frames += _frames_out(other)
                frames_per_s += 1 / team_s
        if stage in epoch.first and epoch is self.epochs.newest:
            frames += self.streams.turns.waiting
        if not frames_per_s:
            return epoch.batches[stage]
        within = math.ceil(frames / frames_per_s / takes_s) - 1
        return max(0, min(epoch.batches[stage], within - _frames_out(worker)))

    def _run(self, run: list[QueuedPart], stage: int, epoch: Epoch, worker: WorkerState, now: float) -> None:
        _, _, ready_s, frame = run[0]
        assert frame.slot is not None
        part = Descriptor(worker.incarnation, frame.number, frame.attempt, stage, epoch.number, frame.slot)
        frames: tuple[Frame, ...] = (frame,)
        shared: tuple[do.Shared, ...] = ()
        if len(run) > 1:
            frames = tuple(queued[3] for queued in run)
            part = part._replace(beside=tuple(_beside(other) for other in frames[1:]))
            shared = tuple(do.Shared(*_copies(other, stage, epoch), other.ticket) for other in frames[1:])
            ready_s = max(queued[2] for queued in run)
        for each in frames:
            each.out[stage] = part
        if not worker.out:
            self._note_start(worker, part, epoch, now)
        worker.out[part] = frames
        if len(worker.out) >= self._policy.descriptors_per_worker:
            self.places.roomy.pop(worker.place, None)
        self._emit(do.RunPart(part, ready_s, *_copies(frame, stage, epoch), frame.ticket, shared))

    def _note_start(self, worker: WorkerState, part: Descriptor, epoch: Epoch, now: float) -> None:
        run_s, run_times = epoch.service_s[part.stage].get(worker.place, 0.0), epoch.run_times[part.stage]
        if epoch.batches[part.stage] > 1:
            run_s = run_times.of(worker.place, 1 + len(part.beside)) or run_s
        worker.refill_s = now + _NEARLY * run_s

    def place_of(self, part: Descriptor) -> str:
        worker = self.places.workers.get(part.incarnation)
        return "" if worker is None else worker.place

    def take_back(self, part: Descriptor, now: float, service_s: float = 0.0) -> tuple[Frame, ...] | None:
        """Take a part back from its worker; return its frames, or None for a late or unknown reply."""
        worker = self.places.workers.get(part.incarnation)
        frames = None if worker is None else worker.out.pop(part, None)
        if worker is None or frames is None:
            return None
        for frame in frames:
            del frame.out[part.stage]
        if self.places.serving.get(worker.place) is worker:
            self.places.roomy[worker.place] = worker
        epoch = frames[0].epoch
        assert epoch is not None
        if service_s > 0:
            _learn(epoch, part.stage, worker.place, len(frames), service_s)
        if worker.out:
            following = next(iter(worker.out))
            self._note_start(worker, following, self.epochs.live[following.epoch], now)
        else:
            worker.idle_s = now
        return frames


def _is_charged(worker: WorkerState) -> bool:
    """Whether the worker has a frame that may end it."""
    return any(frame.died_on is not None for frames in worker.out.values() for frame in frames)


def _learn(epoch: Epoch, stage: int, place: str, frames: int, took_s: float) -> None:
    """Learn from a run what a frame takes a team: with batches, its part of a full one, as that is alike for all."""
    known, most, frame_s = epoch.service_s[stage], epoch.batches[stage], took_s / frames
    if most > 1:
        epoch.run_times[stage].note(place, frames, took_s)
        frame_s = epoch.run_times[stage].of(place, most) / most
    before_s = known.get(place, frame_s)
    known[place] = before_s + _SMOOTHING * (frame_s - before_s)
    epoch.quick_s[stage] = _ALIKE * min(known.values())


def _alike(queue: list[QueuedPart], at: int, most: int) -> list[int]:
    """Positions of the first `most` parts that may share a run with the one at position `at`, which is among them."""
    _, stage, _, frame = queue[at]
    alike: list[int] = []
    for position in range(at, len(queue)):
        _, queued_stage, _, queued = queue[position]
        if queued_stage == stage and queued.died_on is None and queued.shape == frame.shape:
            alike.append(position)
            if len(alike) == most:
                break
    return alike


def _busy_until_s(worker: WorkerState) -> float:
    """When its present run is nearly done, for comparison with others that have a run."""
    return worker.refill_s if worker.out else 0.0


def _frames_out(worker: WorkerState) -> int:
    return sum(map(len, worker.out.values()))


def _slot(queued: QueuedPart) -> int:
    slot = queued[3].slot
    assert slot is not None
    return slot


def _beside(frame: Frame) -> Beside:
    assert frame.slot is not None
    return Beside(frame.number, frame.attempt, frame.slot)


def _copies(frame: Frame, stage: int, epoch: Epoch) -> tuple[bool, bool]:
    """Whether this stage copies inputs from lent memory, and outputs to it.

    A frame's only first stage copies inputs into the slot, before any stage reads them there; its only last stage
    copies outputs from the slot, when all other stages are done.
    """
    return frame.unread and stage in epoch.first, frame.lent_out and epoch.last == (stage,)
