"""What holds between any two events (rules R1, R2, R3 and R6), written apart from the code that keeps it true.

`check` is for tests. It reads; it changes nothing.
"""

from __future__ import annotations

from shisha_rt.lifecycle.lifecycle import Lifecycle
from shisha_rt.lifecycle.records import Epoch, Frame
from shisha_rt.lifecycle.tables import EpochPhase, FramePhase, PlacePhase

_IN_SLOT = frozenset({FramePhase.READY, FramePhase.RUNNING, FramePhase.STRANDED, FramePhase.LEAVING})
_OUT = frozenset({FramePhase.RUNNING, FramePhase.LEAVING})


def check(lifecycle: Lifecycle) -> None:
    """Raise AssertionError, saying what is wrong, if a promise of the lifecycle is broken."""
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
    phase, name = frame.phase, f"frame {frame.number}"
    assert (frame.slot is not None) == (phase in _IN_SLOT), f"{name} is {phase.name} with slot {frame.slot}"
    in_epoch = phase in _IN_SLOT and phase is not FramePhase.STRANDED
    assert (frame.epoch is not None) == in_epoch, f"{name} is {phase.name} in epoch {frame.epoch}"
    assert frame.epoch is None or frame.epoch in lifecycle.epochs.live, f"{name} is in epoch {frame.epoch}, not live"
    assert (frame.out is not None) == (phase in _OUT), f"{name} is {phase.name} with {frame.out} out"
    decided = phase in (FramePhase.LEAVING, FramePhase.GONE)
    assert frame.decided or not frame.delivered, f"{name} was delivered before it was decided"
    assert not (frame.delivered and phase is FramePhase.GONE), f"{name} was answered and left, yet it is remembered"
    assert frame.deaths < lifecycle.policy.deaths_per_frame or decided, f"{name} goes on after {frame.deaths} deaths"


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
        for part in worker.out:
            count += 1
            frame = lifecycle.frames.by_number.get(part.frame)
            assert frame is not None, f"{name} has a part of the forgotten frame {part.frame}"
            assert frame.out is part, f"{name} has {part}, its frame has {frame.out}"
            own = (worker.incarnation, frame.attempt, frame.stage, frame.epoch, frame.slot)
            told = (part.incarnation, part.attempt, part.stage, part.epoch, part.slot)
            assert told == own, f"{part} does not describe its frame: {own}"
            assert part.epoch in worker.loaded, f"{name} was given {part} without having loaded its epoch"
            place = lifecycle.epochs.live[part.epoch].plan.stages[part.stage].place
            assert place == worker.place, f"{part} is for {place}, it is on {worker.place}"
    out = sum(frame.out is not None for frame in lifecycle.frames.by_number.values())
    assert out == count, f"{out} frames have a part out, workers have {count}"


def _check_queues(lifecycle: Lifecycle) -> None:
    """READY frames wait for their stage's place and nowhere else; STRANDED ones for a plan."""
    frames = lifecycle.frames
    expected: dict[str, set[int]] = {name: set() for name in lifecycle.places.by_name}
    stranded = set()
    for frame in frames.by_number.values():
        if frame.phase is FramePhase.READY and frame.epoch is not None:
            expected[lifecycle.epochs.live[frame.epoch].plan.stages[frame.stage].place].add(frame.number)
        elif frame.phase is FramePhase.STRANDED:
            stranded.add(frame.number)
    assert frames.ready == expected, f"ready for {frames.ready}, should be {expected}"
    assert frames.stranded == stranded, f"stranded {frames.stranded}, should be {stranded}"
    assert not (stranded and lifecycle.epochs.runnable()), f"{stranded} are stranded while a plan can run them"
    for worker in lifecycle.places.workers.values():
        if not worker.killed and len(worker.out) < lifecycle.policy.descriptors_per_worker:
            idle = [n for n in frames.ready[worker.place] if frames.by_number[n].epoch in worker.loaded]
            assert not idle, f"worker {worker.incarnation} has room, yet frames {idle} wait for it"


def _check_streams(lifecycle: Lifecycle) -> None:
    streams, numbered = lifecycle.frames.streams, lifecycle.frames.by_number
    frames = numbered.values()
    undelivered = sum(not frame.delivered for frame in frames)
    assert streams.undelivered == undelivered, f"undelivered is {streams.undelivered}, should be {undelivered}"
    waiting = [frame for frame in frames if frame.phase is FramePhase.WAITING]
    waiting_bytes = sum(frame.size_bytes for frame in waiting)
    assert streams.waiting_bytes == waiting_bytes, f"{streams.waiting_bytes} bytes wait, should be {waiting_bytes}"
    orders: dict[int, list[int]] = {}
    queues: dict[int, list[int]] = {}
    for frame in frames:  # a dict: in the order of acceptance
        if frame.stream.ordered and not frame.delivered:
            orders.setdefault(id(frame.stream), []).append(frame.number)
        if frame.phase is FramePhase.WAITING:
            queues.setdefault(id(frame.stream), []).append(frame.number)
    for stream in streams.by_key.values():
        order, queue = orders.pop(id(stream), []), queues.pop(id(stream), [])
        assert list(stream.order) == order, f"stream {stream.key} owes {list(stream.order)}, should be {order}"
        assert list(stream.waiting) == queue, f"stream {stream.key} holds {list(stream.waiting)}, should be {queue}"
        assert not order or not numbered[order[0]].decided, f"{order[0]} is decided and first, yet undelivered"
        turns = sum(one is stream for one in streams.turn)
        assert turns == bool(queue), f"stream {stream.key} has {turns} turns, {len(queue)} frames wait"
    assert not orders, "frames are owed to a forgotten stream"
    assert not queues, "frames wait in a forgotten stream"
    if streams.turn and lifecycle.frames.free_slots:
        assert lifecycle.epochs.runnable() is None, "frames wait, slots are free, and a plan can run them"


def _check_proposals(lifecycle: Lifecycle) -> None:
    epochs = lifecycle.epochs
    names = [(one.event.owner, one.event.proposal) for one in epochs.proposals]
    if epochs.preparing is not None:
        names.append((epochs.preparing.proposal.owner, epochs.preparing.proposal.proposal))
    assert len(set(names)) == len(names), f"a proposal is there twice: {names}"
    ready = epochs.proposals and epochs.proposals[0].placed and epochs.preparing is None and len(epochs.live) < 2
    assert not ready, f"{epochs.proposals[0]} could be prepared, and is not"


def _check_epochs(lifecycle: Lifecycle) -> None:
    epochs = lifecycle.epochs
    assert len(epochs.live) <= 2, f"{len(epochs.live)} epochs live"
    if epochs.preparing is not None:
        assert epochs.preparing.phase is EpochPhase.PREPARING, f"epoch {epochs.preparing.number} is being prepared"
        assert len(epochs.live) < 2, f"a third epoch is being prepared beside {list(epochs.live)}"
        down = set(epochs.preparing.plan.places) - set(lifecycle.places.available)
        assert not down, f"epoch {epochs.preparing.number} is being prepared on {down}, out of planning"
        assert all(epochs.preparing.number > number for number in epochs.live), "an older number is being prepared"
    assert list(epochs.live) == sorted(epochs.live), f"live epochs {list(epochs.live)} are not oldest first"
    members: dict[int, set[int]] = {number: set() for number in epochs.live}
    for frame in lifecycle.frames.by_number.values():
        if frame.epoch is not None:
            members[frame.epoch].add(frame.number)
    for number, epoch in epochs.live.items():
        phase = EpochPhase.LIVE if epoch is epochs.newest else EpochPhase.RETIRING
        assert epoch.phase is phase, f"epoch {number} is {epoch.phase.name}, should be {phase.name}"
        assert epoch.frames == members[number], f"epoch {number} has {epoch.frames}, should be {members[number]}"
        assert epoch.frames or phase is EpochPhase.LIVE, f"epoch {number} is superseded and empty, yet not retired"
        _check_loads(lifecycle, epoch)
    known = {*epochs.live, *([epochs.preparing.number] if epochs.preparing else [])}
    for worker in lifecycle.places.workers.values():
        of_worker = worker.loaded | worker.loading.keys()
        assert of_worker <= known, f"worker {worker.incarnation} has epochs {of_worker}, known are {known}"
        assert worker.loaded.isdisjoint(worker.loading), f"worker {worker.incarnation} loads what it has loaded"
    if epochs.preparing is not None:
        _check_loads(lifecycle, epochs.preparing)


def _check_loads(lifecycle: Lifecycle, epoch: Epoch) -> None:
    """Every worker that is up and stays has, or builds, its stage of an epoch that needs it."""
    for name in epoch.plan.places:
        worker = lifecycle.places.worker_of(name)
        if worker is not None:
            ours = epoch.number in worker.loaded or epoch.number in worker.loading
            assert ours, f"worker {worker.incarnation} on {name} was not asked for epoch {epoch.number}"


def _check_places(lifecycle: Lifecycle) -> None:
    places = lifecycle.places
    assert places.available, "the last place was given up"
    incarnations = set()
    out = {place.name for place in places.by_name.values() if place.phase is PlacePhase.OUT}
    assert places.out == out, f"places {out} are out, noted are {places.out}"
    for place in places.by_name.values():
        has_process = place.phase in (PlacePhase.STARTING, PlacePhase.UP)
        assert has_process == (place.incarnation is not None), f"{place.name} is {place.phase.name}: {place}"
        if place.incarnation is not None:
            incarnations.add(place.incarnation)
            assert places.workers[place.incarnation].place == place.name, f"{place.name} has another's worker"
    assert incarnations == set(places.workers), f"places have {incarnations}, workers are {set(places.workers)}"
