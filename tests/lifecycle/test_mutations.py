"""Break one rule on purpose: the random interleavings find it, with the invariants and from outside alone.

A checker that never fails proves nothing. Each lifecycle below is the real one with one rule broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle.epochs import Epochs
from shisha_rt.lifecycle.frames import Frames
from shisha_rt.lifecycle.lifecycle import Lifecycle
from shisha_rt.lifecycle.records import Frame, QueuedPlan, WorkerState
from shisha_rt.lifecycle.tables import EpochPhase, FramePhase
from shisha_rt.wire.codes import Code
from tests.lifecycle.simulated_world import BrokenPromise, run

MOST_SEEDS: Final = 600


class FreesTheSlotAtTheDeadline(Frames):
    """R3.3: the slot of a decided frame waits for the part that is out."""

    def _abandon(self, frame: Frame, code: Code, message: str) -> None:
        super()._abandon(frame, code, message)
        if frame.phase is FramePhase.LEAVING and frame.slot is not None:
            self.free_slots.append(frame.slot)
            frame.slot = None


class TakesAnyReply(Frames):
    """R3.2: a reply counts only if it matches an outstanding descriptor, attempt, stage and incarnation included."""

    def _take_back(self, descriptor: ev.Descriptor) -> Frame | None:
        frame = self.by_number.get(descriptor.frame)
        return super()._take_back(descriptor if frame is None or frame.out is None else frame.out)


class PresumesDeath(Frames):
    """R3.4: a silent worker may still write; only its certain death gives its frames back."""

    def expire(self, now: float) -> None:
        for worker in self._places.workers.values():
            if worker.killed:
                self.worker_gone(worker, None, "silent")
        super().expire(now)


class DeliversWhenDone(Frames):
    """R1: a stream's answers keep its order."""

    def _decide(self, frame: Frame, code: Code | None = None, message: str = "") -> None:
        frame.error = None if code is None else (code, message)
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


class DispatchesBeforeLoading(Frames):
    """R2: a part runs only on an incarnation that has said `Prepared` for its epoch."""

    def dispatch(self) -> None:
        for worker in self._places.workers.values():
            room = self._policy.descriptors_per_worker - len(worker.out)
            for number in sorted(self.ready[worker.place])[:room]:
                self._run(self.by_number[number], worker)


class KeepsTheStageAcrossEpochs(Frames):
    """R2: under another epoch a frame starts again from its own input."""

    def _enlist(self, frame: Frame, epoch: int) -> None:
        stage = frame.stage
        super()._enlist(frame, epoch)
        last = len(self._epochs.live[epoch].plan.stages) - 1
        if stage and last:
            self._step(frame, "dispatch")  # out of the queue of stage 0 and into that of the later stage
            self._step(frame, "advance")
            frame.stage = min(stage, last)
            self._queue(frame)


class ChargesEveryFrame(Frames):
    """R3.5: only the frame that a worker was computing is charged with its death."""

    def _replay(self, frame: Frame, *, charged: bool, place: str, reason: str) -> None:
        super()._replay(frame, charged=True, place=place, reason=reason)


class ForgetsToReload(Epochs):
    """R2: a restarted worker loads the live epochs."""

    def load(self, worker: WorkerState, now: float) -> None:
        pass


class LetsAnyPlanPass(Epochs):
    """R4: `verify` passes every plan before it runs."""

    def propose(self, event: ev.PlanProposed, now: float) -> None:
        self.proposals.append(QueuedPlan(event, event.plan, placed=True, until_s=now))


class TakesPlansOutOfDate(Epochs):
    """A plan of the daemon's own holds for the epoch under which it was made: else it undoes a client's."""

    def advance(self, now: float) -> None:
        for proposal in self.proposals:
            proposal.event = replace(proposal.event, under=self.newest.number if self.newest else None)
        super().advance(now)


class LosesAProposal(Epochs):
    """Each proposal is settled."""

    def not_placed(self, event: ev.PlanNotPlaced) -> None:
        proposal = self._unplaced(event.owner, event.proposal)
        if proposal is not None:
            self.proposals.remove(proposal)


class DealsToTheHung(Frames):
    """R3.4: a worker that is to be killed is given nothing more."""

    def dispatch(self) -> None:
        for worker in self._places.workers.values():
            worker.killed, killed = False, worker.killed
            super().dispatch()
            worker.killed = killed


MUTANTS: Final = (
    FreesTheSlotAtTheDeadline,
    TakesAnyReply,
    PresumesDeath,
    DeliversWhenDone,
    RetiresABusyEpoch,
    DispatchesBeforeLoading,
    KeepsTheStageAcrossEpochs,
    ChargesEveryFrame,
    ForgetsToReload,
    LetsAnyPlanPass,
    TakesPlansOutOfDate,
    LosesAProposal,
    DealsToTheHung,
)
Part = type[Frames] | type[Epochs]


def broken(part: Part) -> Callable[..., Lifecycle]:
    """A lifecycle with one of its parts turned into a broken one."""

    def make(*arguments: Any) -> Lifecycle:
        lifecycle = Lifecycle(*arguments)
        (lifecycle.frames if issubclass(part, Frames) else lifecycle.epochs).__class__ = part
        lifecycle._apply[ev.PlanProposed] = lifecycle.epochs.propose  # was bound to the one that is not broken
        return lifecycle

    return make


def first_break(mutant: Part, *, validate: bool) -> BrokenPromise | None:
    for seed in range(MOST_SEEDS):
        try:
            run(seed, broken(mutant), validate=validate)
        except BrokenPromise as found:
            return found
    return None


@pytest.mark.parametrize("validate", [True, False], ids=["with invariants", "from outside"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: Part, validate: bool) -> None:
    found = first_break(mutant, validate=validate)
    assert found is not None, f"not found in {MOST_SEEDS} interleavings"
    assert str(found).startswith("seed "), "the seed comes first, to be played again"
    assert type(found.__cause__) is AssertionError, "a check said so, it did not merely crash"
