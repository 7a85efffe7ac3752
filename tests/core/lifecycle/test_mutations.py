"""Break one rule on purpose: the random interleavings find it, with the invariants and from outside alone.

A checker that never fails proves nothing. Each lifecycle below is the real one with one rule broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import pytest
from msgspec.structs import replace

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle.dealing import Dealing
from shisha_rt.core.lifecycle.epochs import Epochs, TensorT
from shisha_rt.core.lifecycle.frames import Frames
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.records import Epoch, Frame, PoolState, QueuedPart, QueuedPlan, WorkerState
from shisha_rt.core.lifecycle.tables import EpochPhase, FramePhase
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan
from tests.core.lifecycle.simulated_world import BrokenPromise, run

# It tests the tests: what they would find is for `make test-long` to show.
pytestmark = pytest.mark.long

MOST_SEEDS: Final = 2000


class FreesTheSlotAtTheDeadline(Frames):
    """R3.3: the slot of a decided frame waits for the part that is out."""

    def _abandon(self, frame: Frame, kind: Error, message: str) -> None:
        super()._abandon(frame, kind, message)
        if frame.phase is FramePhase.LEAVING and frame.slot is not None:
            self.free_slots.append(frame.slot)
            frame.slot = None


class FreesTheSlotAtTheFirstReturn(Frames):
    """R3.1: of a frame with several parts out, the slot waits for the last one."""

    def _returned(self, frame: Frame) -> None:
        if frame.out and frame.slot is not None:
            self.free_slots.append(frame.slot)
            frame.slot = None
        super()._returned(frame)


class TakesAnyReply(Dealing):
    """R3.2: a reply counts only if it matches an outstanding descriptor, attempt, epoch and incarnation included."""

    def take_back(self, part: ev.Descriptor, now: float, service_s: float = 0.0) -> tuple[Frame, ...] | None:
        out = [dealt for worker in self.places.workers.values() for dealt in worker.out]
        like = (dealt for dealt in out if dealt.frame == part.frame)
        return super().take_back(next(like, part), now, service_s)


class PresumesDeath(Frames):
    """R3.4: a silent worker may still write; only its certain death gives its frames back."""

    def expire(self, now: float) -> None:
        for worker in self._dealing.places.workers.values():
            if worker.killed:
                self.worker_gone(worker, ev.WorkerGone(worker.incarnation, None, "silent"), now)
        super().expire(now)


class DeliversWhenDone(Frames):
    """R1: a stream's answers keep its order."""

    def _answer(self, frame: Frame) -> None:
        if frame.stream.ordered:
            frame.stream.order.remove(frame.number)
        self._deliver(frame)


class RetiresABusyEpoch(Epochs):
    """R2: the old epoch is retired with its last frame."""

    def finish_retiring(self) -> None:
        super().finish_retiring()
        for epoch in self.live.values():
            if epoch.phase is EpochPhase.RETIRING:
                self._unload(epoch)


class LeadsToAnUnloadedEpoch(Epochs):
    """R2: both plans that are compared stay loaded."""

    def lead(self, number: int, now: float) -> None:
        super().lead(number, now)
        if self.beside is not None:
            self._unload(self.beside)


class ComparesForEver(Epochs):
    """A comparison makes way for other plans."""

    def let_go(self, now: float) -> None:
        pass


class DealsBeforeLoading(Dealing):
    """R2: a part runs only on an incarnation that has said `Prepared` for its epoch and stage."""

    def _taker(self, *part: Any) -> WorkerState | None:
        free: list[WorkerState] = part[-1]
        return super()._taker(*part) or free[0]


class KeepsStagesAcrossEpochs(Frames):
    """R2: under another epoch a frame starts again from its own input."""

    def _strand(self, frame: Frame) -> None:
        done = set(frame.done)
        super()._strand(frame)
        frame.done = done

    def _enlist(self, frame: Frame, epoch: Epoch, now: float) -> None:
        stages = epoch.plan.stages
        frame.epoch, frame.done = epoch, {stage for stage in frame.done if stage < len(stages) - 1}
        epoch.frames.add(frame.number)
        for index, stage in enumerate(stages):
            if index not in frame.done and frame.done.issuperset(stage.after):
                self._dealing.queue(frame, index, now)


class ChargesEveryFrame(Frames):
    """R3.5: only the frame that a worker was computing is charged with its death."""

    def worker_gone(self, worker: WorkerState, event: ev.WorkerGone, now: float) -> None:
        lost = dict(worker.out)
        super().worker_gone(worker, replace(event, running=None), now)
        for part, frames in lost.items():
            for frame in frames:
                self._blame(frame, part, worker.place, event.reason)


class ChargesEveryPart(Frames):
    """A death is charged once, however many parts of the frame the worker had."""

    def worker_gone(self, worker: WorkerState, event: ev.WorkerGone, now: float) -> None:
        lost = [(part, frames[0]) for part, frames in worker.out.items() if part.frame == event.running]
        super().worker_gone(worker, event, now)
        for part, frame in lost[1:]:
            self._blame(frame, part, worker.place, event.reason)


class ChargesEveryDeath(Frames):
    """Of two workers that have parts of one frame, and both die of it, one counts."""

    def _blame(self, frame: Frame, part: ev.Descriptor, place: str, reason: str) -> None:
        frame.excused = frozenset()
        super()._blame(frame, part, place, reason)


class FellsEveryCopy(Dealing):
    """A frame that is charged with a death runs again where that was."""

    def _taker(self, frame: Frame, *part: Any) -> WorkerState | None:
        frame.died_on, died_on = None, frame.died_on
        worker = super()._taker(frame, *part)
        frame.died_on = died_on
        return worker


class RisksAllAtOnce(Dealing):
    """Of the teams of a pool one at a time has frames that may end it."""

    def _can_spare(self, *part: Any) -> bool:
        return True


class DoesNotWaitToJoin(Frames):
    """A stage is ready when all that it comes after are done."""

    def _go_on(self, frame: Frame, epoch: Epoch, done: int, now: float) -> None:
        for stage in epoch.followers[done]:
            queued = any(entry[:2] == (frame.number, stage) for entry in epoch.pool_of[stage].queue)
            if stage not in frame.done and stage not in frame.out and not queued:
                self._dealing.queue(frame, stage, now)


class TakesBackAnothersPart(Frames):
    """A death takes back what that worker had, and nothing that others have."""

    def worker_gone(self, worker: WorkerState, event: ev.WorkerGone, now: float) -> None:
        for frames in list(worker.out.values()):
            for part in [part for frame in frames for part in frame.out.values()]:
                other = self._dealing.places.workers.get(part.incarnation, worker)
                if part in other.out:
                    worker.out[part] = other.out.pop(part)
        super().worker_gone(worker, event, now)


class RunsAPartTwice(Dealing):
    """A part is with one of its pool's teams."""

    def queue(self, frame: Frame, stage: int, now: float) -> None:
        super().queue(frame, stage, now)
        assert frame.epoch is not None
        if len(frame.epoch.pool_of[stage].leads) > 1:
            super().queue(frame, stage, now)


class BeginsAnewWhileAPartIsOut(Frames):
    """A frame starts over only when none of its parts is out: what is out may still write."""

    def rescue(self, now: float) -> None:
        for epoch in self._epochs.live.values():
            for number in epoch.frames if self._epochs.is_broken(epoch) else ():
                frame = self.by_number[number]
                if frame.phase is FramePhase.ACTIVE:
                    for part in list(frame.out.values()):
                        self._dealing.take_back(part, now)
        super().rescue(now)


class DealsDepthFirst(Dealing):
    """No team gets a second part while one of its pool has none."""

    def _taker(self, frame: Frame, stage: int, epoch: Epoch, pool: PoolState, free: Any) -> WorkerState | None:
        willing = (self._taker_of(frame, stage, epoch, pool, worker) for worker in free)
        return next((worker for worker in willing if worker is not None), None)

    def _taker_of(self, frame: Frame, stage: int, epoch: Epoch, pool: PoolState, worker: Any) -> WorkerState | None:
        return super()._taker(frame, stage, epoch, pool, [worker])


class DealsToTheDown(Dealing):
    """A place that is taken down gets no more parts while another team can run them."""

    def _taker(self, *part: Any) -> WorkerState | None:
        self.places.down, down = set(), self.places.down
        worker = super()._taker(*part)
        self.places.down = down
        return worker


class PunchesWhatIsPassed(Epochs):
    """Slots keep their room for what the stages of a live epoch pass to each other."""

    def passed_by_none_but(self, ended: Plan, passing: Callable[[Plan], set[TensorT]]) -> set[TensorT]:
        return passing(ended)


class ForgetsToReload(Epochs):
    """R2: a restarted worker loads the live epochs."""

    def load(self, worker: WorkerState, now: float) -> None:
        pass


class LetsAnyPlanPass(Epochs):
    """R4: `verify` passes every plan before it runs."""

    def propose(self, proposed: ev.PlanProposed, now: float) -> None:
        self.proposals.append(QueuedPlan(proposed, proposed.plan, placed=True, until_s=now))


class TakesPlansOutOfDate(Epochs):
    """A plan of the daemon's own holds for the epoch under which it was made: else it undoes a client's."""

    def advance(self, now: float) -> None:
        for proposal in filter(attrgetter("placed"), self.proposals):
            proposal.proposed = replace(proposal.proposed, under=self.newest.number if self.newest else None)
        super().advance(now)


class LosesAProposal(Epochs):
    """Each proposal is settled."""

    def not_placed(self, event: ev.PlanNotPlaced) -> None:
        proposal = self._unplaced(event.proposed)
        if proposal is not None:
            self.proposals.remove(proposal)


class DealsToTheHung(Dealing):
    """R3.4: a worker that is to be killed is given nothing more."""

    def dispatch(self, now: float) -> None:
        serving, roomy = self.places.serving, self.places.roomy
        hung = {worker.place: worker for worker in self.places.workers.values() if worker.killed and worker.loaded}
        serving.update(hung)
        roomy.update(hung)
        super().dispatch(now)
        for place in hung:
            del serving[place]
            roomy.pop(place, None)


class AnswersWhileItIsWritten(Frames):
    """R3: what a client lends for outputs is its own again with the answer."""

    def _abandon(self, frame: Frame, kind: Error, message: str) -> None:
        frame.lent_out = False
        super()._abandon(frame, kind, message)


class ReadsAgain(Frames):
    """R3: a slot that has been read into is not read into again, under another epoch either."""

    def _strand(self, frame: Frame) -> None:
        super()._strand(frame)
        frame.unread = True


class LeavesReadingToEach(Frames):
    """R3: where several stages begin a frame, none of them can read what is lent for the others."""

    def _enlist(self, frame: Frame, epoch: Epoch, now: float) -> None:
        unread, frame.unread = frame.unread, False
        super()._enlist(frame, epoch, now)
        frame.unread = unread


class ReleasesCoresInUse(Epochs):
    """A place is released when no team computes on its cores any more, wherever that team's worker is."""

    def places_planned(self) -> set[str]:
        return self.places_in_use()


class CountsARunOnce(Dealing):
    """A run of several frames is done for all of them."""

    def take_back(self, part: ev.Descriptor, now: float, service_s: float = 0.0) -> tuple[Frame, ...] | None:
        frames = super().take_back(part, now, service_s)
        return None if frames is None else frames[:1]


class FailsANeighbour(Frames):
    """What ends a run of several frames is charged to none of them until it has run alone."""

    def _suspect(self, frame: Frame, stage: int, place: str) -> None:
        super()._suspect(frame, stage, place)
        self._charge(frame, place, "its neighbour's fault")


class SparesASuspect(Frames):
    """A suspect that ends its worker alone is the one."""

    def _charge(self, frame: Frame, place: str, reason: str) -> None:
        suspected, frame.suspected = frame.suspected, None
        super()._charge(frame, place, reason)
        frame.suspected = suspected


class SuspectsForGood(Frames):
    """A suspect that has passed its stage alone may share runs again."""

    def _passed(self, frame: Frame, stage: int, left: int, now: float) -> None:
        frame.suspected, suspected = None, frame.suspected
        super()._passed(frame, stage, left, now)
        frame.suspected = suspected


class RunsSuspectsTogether(Dealing):
    """Suspects run alone, or nobody ever knows."""

    def _run_from(self, pool: PoolState, at: int, *more: Any) -> list[QueuedPart] | None:
        queued = [part[3] for part in pool.queue]
        died_on = [frame.died_on for frame in queued]
        for frame in queued:
            frame.died_on = None
        run = super()._run_from(pool, at, *more)
        for frame, place in zip(queued, died_on, strict=True):
            frame.died_on = place
        return run


class MixesShapes(Dealing):
    """A run has frames of one shape."""

    def _run_from(self, pool: PoolState, at: int, *more: Any) -> list[QueuedPart] | None:
        shapes = {part[3].number: part[3].shape for part in pool.queue}
        frames = [part[3] for part in pool.queue]
        for frame in frames:
            frame.shape = 0
        run = super()._run_from(pool, at, *more)
        for frame in frames:
            frame.shape = shapes[frame.number]
        return run


class TakesMoreThanFit(Dealing):
    """A run has as many frames as its stage was prepared for."""

    def _run_from(self, pool: PoolState, at: int, epoch: Epoch, *more: Any) -> list[QueuedPart] | None:
        batches, epoch.batches = epoch.batches, tuple(2 * batch for batch in epoch.batches)
        run = super()._run_from(pool, at, epoch, *more)
        epoch.batches = batches
        return run


class LosesTheOrderOfARun(Dealing):
    """Frames of a run come back as they went."""

    def take_back(self, part: ev.Descriptor, now: float, service_s: float = 0.0) -> tuple[Frame, ...] | None:
        return super().take_back(part._replace(beside=part.beside[::-1]), now, service_s)


class FreesTheSlotsOfARunEarly(Frames):
    """The slots of a run are with the worker until it is back, whatever became of one of its frames."""

    def _abandon(self, frame: Frame, kind: Error, message: str) -> None:
        shares = any(part.beside for part in frame.out.values())
        super()._abandon(frame, kind, message)
        if shares and frame.slot is not None:
            self.free_slots.append(frame.slot)
            frame.slot = None


class LeavesATeamIdle(Dealing):
    """No team takes all that is ready while another has nothing."""

    def _idle(self, epoch: Epoch, stage: int, pool: PoolState) -> int:
        return 1


class WaitsForGood(Dealing):
    """A run waits for frames that have not come only so long."""

    def dispatch(self, now: float) -> None:
        super().dispatch(now)
        self.wake_s = math.inf


class BlamesThePlanForAFrame(Epochs):
    """R3.5: a frame is charged with the death of the worker that computed it, also if that was preparing a plan."""

    def blames_plan(self, worker: WorkerState, event: ev.WorkerGone) -> bool:
        return super().blames_plan(worker, replace(event, running=None))


MUTANTS: Final = (
    CountsARunOnce,
    FailsANeighbour,
    SparesASuspect,
    SuspectsForGood,
    RunsSuspectsTogether,
    MixesShapes,
    TakesMoreThanFit,
    LosesTheOrderOfARun,
    FreesTheSlotsOfARunEarly,
    LeavesATeamIdle,
    WaitsForGood,
    FreesTheSlotAtTheDeadline,
    FreesTheSlotAtTheFirstReturn,
    TakesAnyReply,
    PresumesDeath,
    DeliversWhenDone,
    RetiresABusyEpoch,
    LeadsToAnUnloadedEpoch,
    ComparesForEver,
    DealsBeforeLoading,
    KeepsStagesAcrossEpochs,
    ChargesEveryFrame,
    ChargesEveryPart,
    ChargesEveryDeath,
    FellsEveryCopy,
    RisksAllAtOnce,
    DoesNotWaitToJoin,
    TakesBackAnothersPart,
    RunsAPartTwice,
    BeginsAnewWhileAPartIsOut,
    DealsDepthFirst,
    DealsToTheDown,
    PunchesWhatIsPassed,
    ForgetsToReload,
    LetsAnyPlanPass,
    TakesPlansOutOfDate,
    LosesAProposal,
    DealsToTheHung,
    AnswersWhileItIsWritten,
    ReadsAgain,
    LeavesReadingToEach,
    ReleasesCoresInUse,
    BlamesThePlanForAFrame,
)
Part = type[Frames] | type[Dealing] | type[Epochs]


def broken(part: Part) -> Callable[..., Lifecycle]:
    """A lifecycle with one of its parts turned into a broken one."""

    def make(*arguments: Any) -> Lifecycle:
        lifecycle = Lifecycle(*arguments)
        for piece in (lifecycle.frames, lifecycle.dealing, lifecycle.epochs):
            if issubclass(part, type(piece)):
                piece.__class__ = part
        lifecycle._apply[ev.PlanProposed] = lifecycle.epochs.propose  # was bound to the one that is not broken
        return lifecycle

    return make


def first_break(mutant: Part, *, validate: bool) -> BrokenPromise | None:
    for seed in range(MOST_SEEDS):
        try:
            run(seed, broken(mutant), validate=validate)
        except BrokenPromise as failure:
            return failure
    return None


@pytest.mark.parametrize("validate", [True, False], ids=["with invariants", "from outside"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: Part, validate: bool) -> None:
    failure = first_break(mutant, validate=validate)
    assert failure is not None, f"not found in {MOST_SEEDS} interleavings"
    assert str(failure).startswith("seed "), "the seed comes first, to be played again"
    assert type(failure.__cause__) is AssertionError, "a check said so, it did not merely crash"
