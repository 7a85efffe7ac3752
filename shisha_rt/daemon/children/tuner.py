"""`python -m shisha_rt.daemon.children.tuner CHANNEL PARENT`: where searches run, so that the daemon's loop never does.

It is the shared loop with an evaluator that asks the daemon: a trial is sent, and its measurement awaited, while the
daemon serves. The daemon may break a run off, or begin another, at any time.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.fabric.channel import Channel
from shisha_rt.fabric.parent import die_with
from shisha_rt.pipeline.guided import guided
from shisha_rt.pipeline.loop import Proposal, Tuner, run
from shisha_rt.pipeline.tune import Balance, shisha
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.tuning import tuner_messages as tm


class _BrokenOff(Exception):
    """The daemon wants no more of this run; `begin` is the one that it wants instead, if any."""

    def __init__(self, begin: tm.Begin | None) -> None:
        super().__init__()
        self.begin = begin


class _Told:
    """A tuner whose last proposal can be read: the daemon's events say why each plan was tried."""

    def __init__(self, tuner: Tuner[Any]) -> None:
        self._tuner = tuner
        self.last: Proposal | None = None

    def init(self) -> tuple[Any, Proposal]:
        return self._noted(self._tuner.init())

    def step(self, state: Any, observation: Measurement) -> tuple[Any, Proposal]:
        return self._noted(self._tuner.step(state, observation))

    def _noted(self, found: tuple[Any, Proposal]) -> tuple[Any, Proposal]:
        self.last = found[1]
        return found


class _LiveEvaluator:
    """Measures a plan by having the daemon run it. Blocks as long as no frames come."""

    def __init__(self, channel: Channel, run_number: int, tuner: _Told) -> None:
        self._channel = channel
        self._run = run_number
        self._tuner = tuner

    def measure(self, plan: Plan) -> Measurement:
        last = self._tuner.last
        assert last is not None  # it has proposed the plan
        self._channel.send(tm.encode(tm.Try(self._run, tm.stages_of(plan), last.reason, last.lower_bound_s)))
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
    stored: Costs | None = None
    begin: tm.Begin | None = None
    while True:
        if begin is None:
            match tm.decode_to_tuner(channel.wait()):
                case tm.StoredCosts(text=text):
                    stored = parse_costs(text, "the daemon's stored costs")
                case tm.Begin() as begin:
                    pass
            continue
        try:
            channel.send(tm.encode(_search(begin, stored, channel)))
            begin = None
        except _BrokenOff as broken:
            begin = broken.begin


def _search(begin: tm.Begin, stored: Costs | None, channel: Channel) -> tm.Finished:
    tuner = _Told(_tuner_of(begin, stored))
    result = run(tuner, _LiveEvaluator(channel, begin.run, tuner))
    bound_s = tuner.last.lower_bound_s if tuner.last is not None else None
    return tm.Finished(begin.run, tm.stages_of(result.solution), result.reason, result.outcome, bound_s)


def _tuner_of(begin: tm.Begin, stored: Costs | None) -> Tuner[Any]:
    if begin.strategy == "guided":
        assert stored is not None  # else the daemon has no such strategy
        return guided(_costs_now(stored, begin.places), start=Plan.of(begin.start))
    return shisha(
        Plan.of(begin.start),
        begin.places,
        alpha=begin.alpha,
        balance=cast(Balance, begin.balance),
        legal_cuts=begin.legal_cuts,
        order=begin.order,
    )


def _costs_now(stored: Costs, places: Sequence[tm.PlaceNow]) -> Costs:
    """The stored costs of the places that can be used, at the speeds that they have now."""
    columns = [stored.place_index(place.name) for place in places]
    return replace(
        stored,
        places=tuple(replace(stored.places[c], rank=p.rank) for c, p in zip(columns, places, strict=True)),
        time_s=stored.time_s[:, columns] * np.array([place.slower for place in places]),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
