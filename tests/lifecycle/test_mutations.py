"""Break one rule on purpose: the random interleavings find it, with the invariants and from outside alone.

A checker that never fails proves nothing. Each lifecycle below is the real one with one rule broken.
"""

from __future__ import annotations

from typing import Final

import pytest

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle.lifecycle import Lifecycle
from shisha_rt.lifecycle.states import EpochPhase, Frame, FramePhase
from shisha_rt.wire.codes import Code
from tests.lifecycle.simulated_world import BrokenPromise, run

MOST_SEEDS: Final = 600


class FreesTheSlotAtTheDeadline(Lifecycle):
    """R3.3: the slot of a decided frame waits for the part that is out."""

    def _abandon(self, frame: Frame, code: Code, message: str) -> None:
        super()._abandon(frame, code, message)
        if frame.phase is FramePhase.LEAVING and frame.slot is not None:
            self.free_slots.append(frame.slot)
            frame.slot = None


class TakesAnyReply(Lifecycle):
    """R3.2: a reply counts only if it matches an outstanding descriptor, attempt, stage and incarnation included."""

    def _take_back(self, descriptor: ev.Descriptor) -> Frame | None:
        frame = self.frames.get(descriptor.frame)
        return super()._take_back(descriptor if frame is None or frame.out is None else frame.out)


class PresumesDeath(Lifecycle):
    """R3.4: a silent worker may still write; only its certain death gives its frames back."""

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Instruction]:
        if isinstance(event, ev.Tick):
            for worker in self.places.workers.values():
                for part in list(worker.out):
                    frame = self._take_back(part)
                    assert frame is not None
                    if frame.phase is FramePhase.LEAVING:
                        self._step(frame, "return")
                        self._free(frame)
                    else:
                        self._replay(frame, charged=False, worker=worker.place, reason="silent")
        return super().handle(event, now_s)


class DeliversWhenDone(Lifecycle):
    """R1: a stream's answers keep its order."""

    def _decide(self, frame: Frame, code: Code | None, message: str) -> None:
        frame.decided, frame.code, frame.message = True, code, message
        if frame.stream.ordered:
            frame.stream.order.remove(frame.number)
        self._deliver(frame)


class RetiresABusyEpoch(Lifecycle):
    """R2: the old epoch is retired with its last frame."""

    def _pump(self, now: float) -> None:
        super()._pump(now)
        for epoch in self.epochs.live.values():
            if epoch.phase is EpochPhase.RETIRING:
                self.epochs._unload(epoch)


class DispatchesBeforeLoading(Lifecycle):
    """R2: a part runs only on an incarnation that has said `Prepared` for its epoch."""

    def _dispatch(self) -> None:
        for worker in self.places.workers.values():
            room = self.policy.descriptors_per_worker - len(worker.out)
            for number in sorted(self.ready[worker.place])[:room]:
                self._run(self.frames[number], worker.incarnation)


class KeepsTheStageAcrossEpochs(Lifecycle):
    """R2: under another epoch a frame starts again from its own input."""

    def _enlist(self, frame: Frame, epoch: int) -> None:
        stage = frame.stage
        super()._enlist(frame, epoch)
        last = len(self.epochs.live[epoch].plan.stages) - 1
        if stage and last:
            self._step(frame, "dispatch")  # out of the queue of stage 0 and into that of the later stage
            self._step(frame, "advance")
            frame.stage = min(stage, last)
            self._queue(frame)


class ChargesEveryFrame(Lifecycle):
    """R3.5: only the frame that a worker was computing is charged with its death."""

    def _replay(self, frame: Frame, *, charged: bool, worker: str, reason: str) -> None:
        super()._replay(frame, charged=True, worker=worker, reason=reason)


class ForgetsToReload(Lifecycle):
    """R2: a restarted worker loads the live epochs."""

    def _worker_ready(self, event: ev.WorkerReady, now: float) -> None:
        self.places.ready(event.incarnation)


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
)


def first_break(mutant: type[Lifecycle], *, validate: bool) -> BrokenPromise | None:
    for seed in range(MOST_SEEDS):
        try:
            run(seed, mutant, validate=validate)
        except BrokenPromise as broken:
            return broken
    return None


@pytest.mark.parametrize("validate", [True, False], ids=["with invariants", "from outside"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: type[Lifecycle], validate: bool) -> None:
    broken = first_break(mutant, validate=validate)
    assert broken is not None, f"not found in {MOST_SEEDS} interleavings"
    assert str(broken).startswith("seed "), "the seed comes first, to be played again"
    assert type(broken.__cause__) is AssertionError, "a check said so, it did not merely crash"
