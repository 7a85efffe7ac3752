"""`python -m shisha_rt.daemon.tuner_process CHANNEL PARENT`: where searches run, so that the daemon's loop never does.

It is the shared loop with an evaluator that asks the daemon: a trial is sent, and its measurement awaited, while the
daemon serves. The daemon may break a run off, or begin another, at any time.
"""

from __future__ import annotations

import signal
import sys
from typing import NamedTuple, cast

from shisha_rt.daemon import tuner_messages as tm
from shisha_rt.fabric.channel import Channel
from shisha_rt.fabric.parent import die_with
from shisha_rt.pipeline.loop import Proposal, run
from shisha_rt.pipeline.tune import Balance, ShishaTuner, Walk, shisha
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


class _BrokenOff(Exception):
    """The daemon wants no more of this run; `begin` is the one that it wants instead, if any."""

    def __init__(self, begin: tm.Begin | None) -> None:
        super().__init__()
        self.begin = begin


class _Ranked(NamedTuple):
    name: str
    rank: int


class _Told:
    """A tuner whose last reason can be read: the daemon's events say why each plan was tried."""

    def __init__(self, tuner: ShishaTuner) -> None:
        self._tuner = tuner
        self.reason = ""

    def init(self) -> tuple[Walk, Proposal]:
        return self._noted(self._tuner.init())

    def step(self, state: Walk, observation: Measurement) -> tuple[Walk, Proposal]:
        return self._noted(self._tuner.step(state, observation))

    def _noted(self, found: tuple[Walk, Proposal]) -> tuple[Walk, Proposal]:
        self.reason = found[1].reason
        return found


class _LiveEvaluator:
    """Measures a plan by having the daemon run it. Blocks as long as no frames come."""

    def __init__(self, channel: Channel, run_number: int, tuner: _Told) -> None:
        self._channel = channel
        self._run = run_number
        self._tuner = tuner

    def measure(self, plan: Plan) -> Measurement:
        self._channel.send(tm.encode(tm.Try(self._run, tm.stages_of(plan), self._tuner.reason)))
        while True:
            match tm.decode_to_tuner(self._channel.wait()):
                case tm.Begin() as begin:
                    raise _BrokenOff(begin)
                case tm.Break(run=number) if number == self._run:
                    raise _BrokenOff(None)
                case tm.Measured(run=number) as measured if number == self._run:
                    return measured.measurement


def main(arguments: list[str]) -> int:
    channel_fd, parent = arguments
    die_with(int(parent))
    for number in (signal.SIGINT, signal.SIGTERM):  # both may reach the whole group; only the daemon acts on them
        signal.signal(number, signal.SIG_IGN)
    channel = Channel.inherited(int(channel_fd))
    begin: tm.Begin | None = None
    while True:
        if begin is None:
            message = tm.decode_to_tuner(channel.wait())
            begin = message if isinstance(message, tm.Begin) else None
            continue
        try:
            channel.send(tm.encode(_search(begin, channel)))
            begin = None
        except _BrokenOff as broken:
            begin = broken.begin


def _search(begin: tm.Begin, channel: Channel) -> tm.Finished:
    tuner = _Told(
        shisha(
            Plan.of(begin.start),
            [_Ranked(name, rank) for name, rank in begin.places],
            alpha=begin.alpha,
            balance=cast(Balance, begin.balance),
            legal_cuts=begin.legal_cuts,
            order=begin.order,
        )
    )
    result = run(tuner, _LiveEvaluator(channel, begin.run, tuner))
    return tm.Finished(begin.run, tm.stages_of(result.solution), result.reason, result.outcome)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
