"""When a daemon computes frames of its own: by real cores that want some, in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Drain
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.profiler_messages import NotProfiled
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.own_frames import OwnFrames
from shisha_rt.errors import Error
from shisha_rt.protocol.request import InferRequest
from tests.core.tuning.contest_world import World, copies

BUSY = 0.5
"""Of the cores."""


class Daemon:
    """What a daemon's shell does for its own frames. No frame is ever done."""

    def __init__(self) -> None:
        self.world = World(lambda stage: 0.01)
        self.world.post(ev.ProfilerSaid(NotProfiled("it cannot be")))
        self.written: list[Any] = []
        numbers = itertools.count(1)
        self.shell = SimpleNamespace(
            cores=self.world.cores,
            write=lambda record, cause: self.written.append(record),
            submit_own=lambda request, answered: next(numbers),
            post=lambda event, cause: None,
        )
        self.frames = OwnFrames(cast(Any, self.shell), [cast(Any, SimpleNamespace(inputs=()))])
        self._now_s = 0.0

    def look(self, others_ratio: float = 0.0) -> bool:
        """Whether it sends some."""
        self._now_s += 0.25
        self.world.post(ev.HostSeen(others_ratio))
        self.frames.look(self._now_s)
        return self.frames.sending


def test_frames_of_its_own_wait_for_the_cores() -> None:
    """Another daemon may have clients there, whose frames would wait; and what is measured then says little."""
    daemon = Daemon()
    assert daemon.world.plan == copies()
    assert not any(daemon.look(BUSY) for _ in range(100))
    assert daemon.written == []
    assert daemon.look()
    assert not daemon.look(BUSY)
    assert daemon.look()
    daemon.world.post(Drain())
    assert not daemon.look()
    reasons = [record.reason for record in daemon.written if isinstance(record, event_log.OwnFramesEnded)]
    assert len(daemon.written) == 4
    assert len(set(reasons)) == 2


def test_a_frame_that_is_refused_at_once_is_not_waited_for() -> None:
    """Its number was kept until the daemon's end."""
    answers: list[Callable[[Ticket], None]] = []
    daemon = Daemon()

    def refuse(request: InferRequest, answered: Callable[[Ticket], None]) -> int:
        answers.append(answered)
        if len(answers) > 1:
            answered(Ticket(request, len(answers), answered, 0.0, error=Error.TARGET_OUT_OF_REACH))
        return len(answers)

    daemon.shell.submit_own = refuse
    assert daemon.look()
    assert daemon.frames.in_flight == len(daemon.frames._waiting) == 1


@pytest.mark.parametrize(("error", "sends"), [(Error.TASK_FAILED, False), (Error.NO_WORKER, True)])
def test_frames_go_on_after_an_error_that_is_not_the_models(error: Error, sends: bool) -> None:
    """An outage at the start ended them for good."""
    answers: list[Callable[[], None]] = []
    daemon = Daemon()

    def submit(request: InferRequest, answered: Callable[[Ticket], None]) -> int:
        number = len(answers) + 1
        answers.append(lambda: answered(Ticket(request, number, answered, 0.0, error=error)))
        return number

    daemon.shell.submit_own = submit
    assert daemon.look()
    sent = len(answers)
    answers[0]()
    assert len(answers) == sent, "not at once"
    assert daemon.look() is sends
    assert (len(answers) > sent) is sends
