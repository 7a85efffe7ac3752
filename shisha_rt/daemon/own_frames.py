"""Frames of the daemon's own, with which a daemon that no client uses yet can compare plans.

Their inputs are noise, always the same; their answers go nowhere, and are not counted. They give way to clients: while
a client sends frames, and for `CALM_S` after, none are sent, and those that wait are cancelled. Nor are any sent while
other processes, another daemon's for example, have the cores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import FrameCancelled
from shisha_rt.core.lifecycle.tables import FramePhase
from shisha_rt.core.tuning.state import Profiles, State
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.errors import Error
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.noise import noise
from shisha_rt.protocol.request import InferRequest
from shisha_rt.tensors import NUMPY_OF

if TYPE_CHECKING:
    from shisha_rt.daemon.shell import Shell

BUDGET_S: Final = 20.0
"""How long a daemon sends such frames in all its life, without the time in which plans are built."""
CALM_S: Final = 2.0
"""They are sent only if no client has sent a frame for this long."""
_FAILS: Final = (Error.TASK_FAILED, Error.WORKER_DIED)
"""The model fails on noise: no more such frames are sent."""
_SPARE: Final = 2
"""Frames beyond one for each place, so that one always waits."""


class OwnFrames:
    """`in_flight`: the number of such frames not answered yet. The object itself is the client key of its frames."""

    def __init__(self, shell: Shell, indexes: Sequence[ModelIndex]) -> None:
        self.in_flight = 0
        self._shell = shell
        self._indexes = indexes
        self._waiting: dict[int, None] = {}
        self._began = self._failed = self._full = False
        self._sending_since_s = math.inf
        self._spent_s = 0.0
        self._frames = 0
        self._client_s = -math.inf

    @property
    def sending(self) -> bool:
        return self._sending_since_s < math.inf

    @property
    def _draining(self) -> bool:
        return self._shell.cores.lifecycle.frames.draining

    def make_way(self) -> None:
        """Stop sending, as a client sends a frame."""
        self._client_s = time.monotonic()
        if self._began:
            self._end("a client sends frames")

    def look(self, now_s: float) -> None:
        """Called periodically: begin if tuning needs load, pause while a plan is built, end when no longer useful."""
        tuning = self._shell.cores.tuning
        if self.sending:
            self._spent_s, self._sending_since_s = self._spent_s + now_s - self._sending_since_s, now_s
        is_wanted = tuning.wants_load is not None and tuning.choice.profiles is not Profiles.COMING
        may = not (self._draining or self._failed or tuning.drift.is_disturbed) and self._spent_s < BUDGET_S
        may = may and now_s - self._client_s >= CALM_S
        if may and is_wanted:
            self._begin(now_s)
        elif self.sending:
            self._pause("there is nothing to compare")
        if self._began and not may:
            self._end(self._why_not())
        elif self._began and tuning.state is not State.COMPARING:
            self._end("plans are compared")

    def _why_not(self) -> str:
        if self._spent_s >= BUDGET_S:
            return "that was long enough"
        return "the daemon is stopping" if self._draining else "other processes have the cores"

    def _begin(self, now_s: float) -> None:
        if not self._began:
            self._began = True
            objective = str(self._shell.cores.tuning.wants_load)
            self._shell.write(event_log.OwnFramesBegan(objective=objective), "the clock")
        if not self.sending:
            self._sending_since_s = now_s
        self._fill_up()

    def _pause(self, why: str) -> None:
        self._sending_since_s = math.inf
        numbered = self._shell.cores.lifecycle.frames.by_number
        for frame in list(self._waiting):
            if frame in numbered and numbered[frame].phase is FramePhase.WAITING:
                self._shell.post(FrameCancelled(frame), why)

    def _end(self, why: str) -> None:
        self._began = False
        self._pause(why)
        ended = event_log.OwnFramesEnded(frames=self._frames, seconds=round(self._spent_s, 3), reason=why)
        self._shell.write(ended, "the clock")

    def _fill_up(self) -> None:
        """Send frames until as many are in flight as the objective needs: one, or more than there are teams."""
        cores = self._shell.cores
        live, objective = cores.lifecycle.live, cores.tuning.wants_load
        if live is None or objective is None:
            return
        most = 1 if objective == "latency" else self._most_at_once()
        self._full = False
        while self.sending and self.in_flight < most and not self._full:
            self._send()

    def _most_at_once(self) -> int:
        """A frame for each place, and some that wait; with batches, two full batches for each place."""
        lifecycle = self._shell.cores.lifecycle
        places, batch = len(lifecycle.available), max(max(epoch.batches) for epoch in lifecycle.epochs.live.values())
        return places + _SPARE if batch == 1 else 2 * places * batch

    @cached_property
    def _inputs(self) -> list[dict[str, memoryview]]:
        """Inputs of a frame of each shape; made once, while no client sends anything."""
        generator = np.random.default_rng(0)
        return [
            {
                spec.name: memoryview(
                    np.full(spec.shape, spec.made_up, NUMPY_OF[spec.datatype]).tobytes()
                    if spec.made_up
                    else noise(spec.shape, spec.datatype, generator).tobytes()
                )
                for spec in index.inputs
            }
            for index in self._indexes
        ]

    def _send(self) -> None:
        layout = self._frames % len(self._indexes)
        tensors = dict(self._inputs[layout])
        size_bytes = sum(data.nbytes for data in tensors.values())
        self._frames += 1
        self.in_flight += 1
        request = InferRequest("", None, None, None, tensors, (), size_bytes, layout)
        before = self.in_flight
        frame = self._shell.submit_own(request, self._answered)
        if self.in_flight == before:  # it was not refused at once
            self._waiting[frame] = None

    def _answered(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self._waiting.pop(ticket.frame, None)
        if ticket.error in _FAILS and self.sending:
            self._failed = True
            self._end(f"they fail: {ticket.message}")
        elif ticket.error is not None:  # as when no worker is there; the next look sends more
            self._full = True
        elif self.sending:
            self._fill_up()
