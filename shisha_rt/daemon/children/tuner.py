"""`python -m shisha_rt.daemon.children.tuner CHANNEL PARENT`: the process that searches for plans; the loop never does.

It runs the shared search loop (`planner.loop`) with an evaluator that sends each trial to the daemon, and waits for the
measurement while the daemon serves. The daemon may stop a search, or begin another, at any time.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.costs.alike import among
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.loop import Tuner, run
from shisha_rt.planner.strategies import Balance
from shisha_rt.planner.tuners import SearchTask, tuner_of
from shisha_rt.process.channel import Channel
from shisha_rt.process.parent import line_to_parent
from shisha_rt.studies import study


class Layers(NamedTuple):
    """Costs of layers, and the layers that each layer reads from."""

    costs: Costs
    needs: tuple[frozenset[int], ...]


Stored: TypeAlias = Layers | tm.StoredProcessors


class _BrokenOff(Exception):
    """The daemon has stopped this search. `by`: the message that stopped it, which is still to be acted on."""

    def __init__(self, by: tm.ToTuner) -> None:
        super().__init__()
        self.by = by


class _LiveEvaluator:
    """Measures a plan by having the daemon run it. Blocks while no frames come."""

    def __init__(self, channel: Channel, run_number: int) -> None:
        self._channel = channel
        self._run = run_number

    def measure(self, proposal: Proposal) -> Measurement:
        tried = tm.Try(self._run, proposal.plan, proposal.reason, proposal.lower_bound_s)
        self._channel.send(tm.FROM_TUNER.encode(tried))
        while True:
            match message := tm.TO_TUNER.decode(self._channel.wait()):
                case tm.Measured(run=number) if number == self._run:
                    return message.measurement
                case tm.Break(run=number) if number == self._run:
                    raise _BrokenOff(message)
                case tm.Begin() | tm.StoredCosts():
                    raise _BrokenOff(message)


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    stored: Stored | None = None
    message = tm.TO_TUNER.decode(channel.wait())
    while True:
        match message:
            case tm.StoredCosts(text=text, needs=needs):
                stored = Layers(parse_costs(text, "the daemon's stored costs"), needs)
            case tm.StoredProcessors():
                stored = message
            case tm.Begin():
                try:
                    channel.send(tm.FROM_TUNER.encode(_search(message, stored, channel)))
                except _BrokenOff as broken:
                    message = broken.by
                    continue
        message = tm.TO_TUNER.decode(channel.wait())


def _search(begin: tm.Begin, stored: Stored | None, channel: Channel) -> tm.Finished:
    result = run(tuner_for(begin, stored), _LiveEvaluator(channel, begin.run))
    return tm.Finished(begin.run, result.solution, result.reason, result.lower_bound_s)


def tuner_for(begin: tm.Begin, stored: Stored | None) -> Tuner[Any]:
    """The search that the daemon asks for, by the costs that it has sent."""
    if isinstance(stored, tm.StoredProcessors):  # the daemon schedules partitions by a scheme
        return cast(Tuner[Any], study("scheme_tuner")(stored, begin))
    goes_by_costs = begin.strategy != "shisha"
    assert stored is not None or not goes_by_costs  # the daemon offers such strategies only once it has costs
    task = SearchTask(
        begin.start,
        begin.places,
        Goal(replicate=begin.replicate, objective=begin.objective, latency_s=begin.latency_s),
        _costs_now(stored.costs, begin) if stored is not None and goes_by_costs else None,
        () if stored is None else stored.needs,
        begin.legal_cuts,
        begin.order,
        begin.alpha,
        cast(Balance, begin.balance),
    )
    return tuner_of(begin.strategy, task)


def _costs_now(stored: Costs, begin: tm.Begin) -> Costs:
    """Stored costs of the available places, at their present speeds; without splits if plans must be plain chains."""
    costs = among(stored, [place.name for place in begin.places], [place.slower for place in begin.places])
    ranked = zip(costs.places, begin.places, strict=True)
    costs = replace(costs, places=tuple(replace(place, rank=now.rank) for place, now in ranked))
    return costs if begin.replicate else replace(costs, splits=SplitCosts())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
