"""What holds between any two events (rules R1, R2, R3 and R6), written apart from the code that keeps it true.

`check` reads; it changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.core.lifecycle.instructions import RunPart
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.records import Epoch, Frame, PoolState, WorkerState
from shisha_rt.core.lifecycle.tables import EpochPhase, FramePhase, PlacePhase

_IN_SLOT = frozenset({FramePhase.ACTIVE, FramePhase.STRANDED, FramePhase.LEAVING})
_IN_EPOCH = frozenset({FramePhase.ACTIVE, FramePhase.LEAVING})


def check(lifecycle: Lifecycle, made: Iterable[object]) -> None:
    """Raise AssertionError, saying what is wrong, if a promise of the lifecycle is broken.

    `made`: what the last event led to.
    """
    for run in made:
        if isinstance(run, RunPart):
            _check_size(lifecycle, run.descriptor)
    for frame in lifecycle.frames.by_number.values():
        _check_frame(lifecycle, frame)
    _check_slots(lifecycle)
    _check_descriptors(lifecycle)
    _check_queues(lifecycle)
    _check_streams(lifecycle)
    _check_proposals(lifecycle)
    _check_epochs(lifecycle)
    _check_places(lifecycle)
    assert not lifecycle.instructions, "instructions were left behind"


def _check_frame(lifecycle: Lifecycle, frame: Frame) -> None:
    phase, epoch, name = frame.phase, frame.epoch, f"frame {frame.number}"
    number = None if epoch is None else epoch.number
    assert (frame.slot is not None) == (phase in _IN_SLOT), f"{name} is {phase.name} with slot {frame.slot}"
    assert (epoch is not None) == (phase in _IN_EPOCH), f"{name} is {phase.name} in epoch {number}"
    assert epoch is None or lifecycle.epochs.live.get(epoch.number) is epoch, f"{name} is in epoch {number}, not live"
    assert epoch is not None or not frame.out, f"{name} is {phase.name} with {frame.out} out"
    assert phase is not FramePhase.LEAVING or frame.out, f"{name} is {phase.name} with nothing out"
    decided = phase in (FramePhase.LEAVING, FramePhase.GONE)
    assert frame.answerable or not frame.delivered, f"{name} was delivered as {phase.name}, lent out: {frame.lent_out}"
    assert not frame.unread or not frame.done, f"{name}: {frame.done} are done, and what is lent has not been read"
    many = epoch is not None and len(epoch.first) > 1
    assert not (frame.unread and many), f"{name} is begun by several stages, and what is lent has not been read"
    assert not (frame.delivered and phase is FramePhase.GONE), f"{name} was answered and left, yet it is remembered"
    assert frame.deaths < lifecycle.policy.deaths_per_frame or decided, f"{name} goes on after {frame.deaths} deaths"
    blamed = frame.deaths or frame.suspected is not None
    assert (frame.died_on is None) == (not blamed), f"{name} has {frame.deaths} deaths, on {frame.died_on}"
    if epoch is None:
        return
    assert not frame.done & frame.out.keys(), f"{name}: {frame.out} are out, {frame.done} are done"
    assert len(frame.done) < len(epoch.plan.stages), f"{name} is computed, yet it is {phase.name}"
    begun = frame.done | frame.out.keys()
    behind = {earlier for stage in begun for earlier in epoch.plan.ancestors(stage)}
    assert behind <= frame.done, f"{name} is at {begun}, which come after {behind}, and {frame.done} are done"


def _check_slots(lifecycle: Lifecycle) -> None:
    frames = lifecycle.frames
    held = [frame.slot for frame in frames.by_number.values() if frame.slot is not None]
    accounted = sorted(held + frames.free_slots)
    assert accounted == list(range(frames.slot_count)), f"slots held {held} and free {frames.free_slots}"


def _check_descriptors(lifecycle: Lifecycle) -> None:
    count = 0
    for worker in lifecycle.places.workers.values():
        name = f"worker {worker.incarnation}"
        assert len(worker.out) <= lifecycle.policy.descriptors_per_worker, f"{name} has {len(worker.out)} parts"
        for part, frames in worker.out.items():
            count += len(frames)
            _check_run(part, frames)
            tasks = ((part.frame, part.attempt, part.slot), *part.beside)
            for frame, (number, attempt, slot) in zip(frames, tasks, strict=True):
                assert lifecycle.frames.by_number.get(number) is frame, f"{name} has {part} of a forgotten frame"
                assert frame.out.get(part.stage) is part, f"{name} has {part}, its frame has {frame.out}"
                own = (worker.incarnation, frame.attempt, frame.slot)
                assert (part.incarnation, attempt, slot) == own, f"{part} does not describe its frame: {own}"
                assert frame.epoch is not None
                assert frame.epoch.number == part.epoch, f"{part} is of a frame in epoch {frame.epoch.number}"
                assert (part.epoch, part.stage) in worker.loaded, f"{name} was given {part} without having loaded it"
                leads = frame.epoch.plan.stages[part.stage].leads
                assert worker.place in leads, f"{part} is for {leads}, it is on {worker.place}"
    out = sum(len(frame.out) for frame in lifecycle.frames.by_number.values())
    assert out == count, f"{out} parts of frames are out, workers have {count}"


def _check_size(lifecycle: Lifecycle, part: Descriptor) -> None:
    """A run that is dealt has at most as many frames as its batch size, which may become 1 while the run is out."""
    most = lifecycle.epochs.live[part.epoch].batches[part.stage]
    assert len(part.frames) <= most, f"{part} has {len(part.frames)} frames, of {most}"


def _check_run(part: Descriptor, frames: tuple[Frame, ...]) -> None:
    """Several frames of a run have one shape, and are in the order of their slots."""
    if len(frames) > 1:
        assert len({frame.shape for frame in frames}) == 1, f"{part} has frames of several shapes"
        assert list(part.slots) == sorted(part.slots), f"{part} has its slots in another order than they lie"


def _check_queues(lifecycle: Lifecycle) -> None:
    """A part is in its pool's queue from when its inputs are done until it is dealt; STRANDED frames wait for plans."""
    frames, epochs = lifecycle.frames, lifecycle.epochs
    for epoch in epochs.live.values():
        for pool in epoch.pools:
            expected = [
                (frame.turn, stage)
                for frame in sorted((frames.by_number[number] for number in epoch.frames), key=_turn)
                for stage in pool.stages
                if _is_ready(frame, stage, epoch)
            ]
            queue = [(turn, stage) for turn, stage, _, _ in pool.queue]
            assert queue == expected, f"{queue} wait for {pool.leads}, should be {expected}"
            if not epochs.is_broken(epoch):
                _check_dealt(lifecycle, epoch, pool)
    stranded = {frame.number for frame in frames.by_number.values() if frame.phase is FramePhase.STRANDED}
    assert frames.stranded == stranded, f"stranded {frames.stranded}, should be {stranded}"
    charged = {n for n, f in frames.by_number.items() if f.died_on is not None and f.phase is not FramePhase.GONE}
    assert lifecycle.dealing.charged == charged, f"charged {lifecycle.dealing.charged}, should be {charged}"
    assert not (stranded and epochs.runnable()), f"{stranded} are stranded while a plan can run them"


def _turn(frame: Frame) -> int:
    return frame.turn


def _is_ready(frame: Frame, stage: int, epoch: Epoch) -> bool:
    waits = stage not in frame.done and stage not in frame.out
    return frame.phase is FramePhase.ACTIVE and waits and frame.done.issuperset(epoch.plan.stages[stage].after)


def _check_dealt(lifecycle: Lifecycle, epoch: Epoch, pool: PoolState) -> None:
    """No worker idles while a part that it can take waits, except in a pool whose teams have measured, unlike times."""
    down, out = lifecycle.places.down, lifecycle.places.lost
    times = [epoch.service_s[stage].values() for stage in pool.stages]
    unlike = len(pool.stages) == 1 and len(pool.leads) > 1 and any(times)
    more_may_come = epoch is lifecycle.epochs.newest
    for lead in pool.leads:
        worker = lifecycle.places.serving.get(lead)
        if worker is None or len(worker.out) >= lifecycle.policy.descriptors_per_worker or unlike:
            continue
        for _, stage, _, frame in pool.queue:
            if (epoch.number, stage) not in worker.loaded:
                continue
            batched = epoch.batches[stage] > 1 and frame.died_on is None
            if batched and more_may_come and (worker.out or _may_wait(lifecycle, epoch, stage, lead)):
                continue  # it waits for more frames
            kept = frame.died_on if frame.died_on in pool.leads and frame.died_on not in out else None
            spared = lead in down and not down.issuperset(pool.leads) and kept is None
            others_go_on = _others_go_on(lifecycle, epoch, stage, pool, lead)
            risks = frame.died_on is not None and not others_go_on
            behind = frame.died_on is None and others_go_on and _is_at_risk(worker)
            taken = spared or risks or behind or kept not in (None, lead)
            assert taken, f"worker {worker.incarnation} has room, yet {frame.number} waits for it at stage {stage}"


def _may_wait(lifecycle: Lifecycle, epoch: Epoch, stage: int, lead: str) -> bool:
    """Whether an idle team may wait for more frames, as it has been told to, or as runs have a cost of their own."""
    may = lifecycle.policy.batch_delay_s or (stage in epoch.first and epoch.run_times[stage].worth_waiting_s(lead))
    return bool(may) and lifecycle.dealing.wake_s < math.inf


def _others_go_on(lifecycle: Lifecycle, epoch: Epoch, stage: int, pool: PoolState, lead: str) -> bool:
    """Whether the pool keeps a worker that is not at risk if that lead's dies; True, too, if there is no other lead."""
    places = lifecycle.places
    others = {*pool.leads} - {lead} - places.lost - places.down
    for other in others:
        worker = places.serving.get(other)
        ready = worker is not None and (epoch.number, stage) in worker.loaded
        if worker is not None and ready and not _is_at_risk(worker):
            return True
    return not others


def _is_at_risk(worker: WorkerState) -> bool:
    return any(frame.died_on for frames in worker.out.values() for frame in frames)


def _check_streams(lifecycle: Lifecycle) -> None:
    streams, numbered = lifecycle.frames.streams, lifecycle.frames.by_number
    frames = numbered.values()
    undelivered = sum(not frame.delivered for frame in frames)
    assert streams.undelivered == undelivered, f"undelivered is {streams.undelivered}, should be {undelivered}"
    waiting = [frame for frame in frames if frame.phase is FramePhase.WAITING]
    waiting_bytes = sum(frame.size_bytes for frame in waiting)
    assert streams.waiting_bytes == waiting_bytes, f"{streams.waiting_bytes} bytes wait, should be {waiting_bytes}"
    of_clients: dict[Hashable, list[int]] = {}
    for frame in frames:
        counts = of_clients.setdefault(frame.stream.key[0], [0, 0])
        counts[0] += not frame.delivered
        counts[1] += frame.size_bytes * (frame.phase is FramePhase.WAITING)
    noted = {key: [client.undelivered, client.waiting_bytes] for key, client in streams.clients.items()}
    of_clients = {key: counts for key, counts in of_clients.items() if counts[0]}
    assert noted == of_clients, f"clients have {of_clients}, noted are {noted}"
    orders: dict[int, list[int]] = {}
    queues: dict[int, list[int]] = {}
    for frame in frames:  # a dict: in the order of acceptance
        if frame.stream.ordered and not frame.delivered:
            orders.setdefault(id(frame.stream), []).append(frame.number)
        if frame.phase is FramePhase.WAITING:
            queues.setdefault(id(frame.stream), []).append(frame.number)
    for stream in [stream for client in streams.clients.values() for stream in client.streams.values()]:
        order, queue = orders.pop(id(stream), []), queues.pop(id(stream), [])
        assert list(stream.order) == order, f"stream {stream.key} owes {list(stream.order)}, should be {order}"
        held = [frame.number for frame in stream.waiting]
        assert held == queue, f"stream {stream.key} holds {held}, should be {queue}"
        assert not order or not numbered[order[0]].answerable, f"{order[0]} can be answered and is first, yet is not"
        turns = [
            priority
            for priority, level in streams.turns.levels.items()
            for turn in level.clients.values()
            for queued in turn.streams
            if queued is stream
        ]
        due = [stream.waiting[0].priority] if queue else []
        assert turns == due, f"stream {stream.key} has turns at {turns}, should at {due}, {len(queue)} frames wait"
    assert not orders, "frames are owed to a forgotten stream"
    assert not queues, "frames wait in a forgotten stream"
    assert streams.turns.waiting == len(waiting), f"{streams.turns.waiting} frames have turns, {len(waiting)} wait"
    epoch = lifecycle.epochs.runnable()
    if streams.turns.levels and epoch is not None:
        assert lifecycle.frames.room(epoch) <= 0, "frames wait, slots are free, and a plan can run them"


def _check_proposals(lifecycle: Lifecycle) -> None:
    epochs = lifecycle.epochs
    names = [(proposal.proposed.owner, proposal.proposed.number) for proposal in epochs.proposals]
    if epochs.preparing is not None:
        names.append((epochs.preparing.proposed.owner, epochs.preparing.proposed.number))
    assert len(set(names)) == len(names), f"a proposal is there twice: {names}"
    ready = epochs.proposals and epochs.proposals[0].placed and epochs.preparing is None and len(epochs.live) < 2
    assert not ready, f"{epochs.proposals[0]} could be prepared, and is not"


def _check_epochs(lifecycle: Lifecycle) -> None:
    epochs = lifecycle.epochs
    assert len(epochs.live) <= 2, f"{len(epochs.live)} epochs live"
    if epochs.preparing is not None:
        assert epochs.preparing.phase is EpochPhase.PREPARING, f"epoch {epochs.preparing.number} is being prepared"
        assert len(epochs.live) < 2, f"a third epoch is being prepared beside {list(epochs.live)}"
        plan, places = epochs.preparing.plan, lifecycle.places
        lost = {*plan.places} & places.down | {*plan.leads} & places.away
        assert not lost, f"epoch {epochs.preparing.number} is being prepared on {lost}, out of planning"
        assert all(epochs.preparing.number > number for number in epochs.live), "an older number is being prepared"
    beside = epochs.beside
    assert beside is None or [*epochs.live.values()][:-1] == [beside], f"{beside} is beside {list(epochs.live)}"
    assert beside is None or not (epochs.proposals or epochs.preparing), f"epoch {beside} keeps others waiting"
    members: dict[int, set[int]] = {number: set() for number in epochs.live}
    for frame in lifecycle.frames.by_number.values():
        if frame.epoch is not None:
            members[frame.epoch.number].add(frame.number)
    for number, epoch in epochs.live.items():
        phase = EpochPhase.LIVE if epoch is epochs.newest else EpochPhase.RETIRING
        assert epoch.phase is phase, f"epoch {number} is {epoch.phase.name}, should be {phase.name}"
        assert epoch.frames == members[number], f"epoch {number} has {epoch.frames}, should be {members[number]}"
        stays = epoch.frames or phase is EpochPhase.LIVE or epoch is beside
        assert stays, f"epoch {number} is superseded and empty, yet not retired"
        _check_loads(lifecycle, epoch)
    known = {*epochs.live, *([epochs.preparing.number] if epochs.preparing else [])}
    for worker in lifecycle.places.workers.values():
        of_worker = {number for number, _ in (*worker.loaded, *worker.loading)}
        assert of_worker <= known, f"worker {worker.incarnation} has epochs {of_worker}, known are {known}"
        assert worker.loaded.isdisjoint(worker.loading), f"worker {worker.incarnation} loads what it has loaded"
    if epochs.preparing is not None:
        _check_loads(lifecycle, epochs.preparing)


def _check_loads(lifecycle: Lifecycle, epoch: Epoch) -> None:
    """Every worker that is up and meant to stay has loaded, or is loading, its stages of the epoch."""
    for index, stage in enumerate(epoch.plan.stages):
        for lead in stage.leads:
            worker = lifecycle.places.serving.get(lead)
            if worker is not None:
                ours = (epoch.number, index) in worker.loaded or (epoch.number, index) in worker.loading
                assert ours, f"{lead}'s worker {worker.incarnation} was not asked for {index} of epoch {epoch.number}"


def _check_places(lifecycle: Lifecycle) -> None:
    places = lifecycle.places
    assert places.available, "the last place was given up"
    incarnations = set()
    out = {place.name for place in places.by_name.values() if place.phase is PlacePhase.OUT}
    assert places.out == out, f"places {out} are out, noted are {places.out}"
    down = {place.name for place in places.by_name.values() if not place.available}
    assert places.down == down, f"places {down} are down, noted are {places.down}"
    away = {place.name for place in places.by_name.values() if place.lost_s is not None and place.available}
    assert places.away <= away, f"{places.away} are away, of {away} without a worker"
    assert not places.away or places.available, "nothing is left to plan with"
    assert places.leaving <= places.down, f"{places.leaving} are leaving, {places.down} are down"
    left = places.leaving & out - lifecycle.epochs.places_planned()
    assert not left, f"{left} have left, and nobody was told"
    serving = {
        worker.place: worker
        for worker in places.workers.values()
        if not worker.killed and _is_up(lifecycle, worker.place)
    }
    assert places.serving == serving, f"{serving} serve, noted are {places.serving}"
    for place in places.by_name.values():
        has_process = place.phase in (PlacePhase.STARTING, PlacePhase.UP)
        assert has_process == (place.incarnation is not None), f"{place.name} is {place.phase.name}: {place}"
        if place.incarnation is not None:
            incarnations.add(place.incarnation)
            assert places.workers[place.incarnation].place == place.name, f"{place.name} has another's worker"
    assert incarnations == set(places.workers), f"places have {incarnations}, workers are {set(places.workers)}"


def _is_up(lifecycle: Lifecycle, place: str) -> bool:
    return lifecycle.places.by_name[place].phase is PlacePhase.UP
