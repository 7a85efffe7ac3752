"""A lifecycle driven by hand: a clock of our own, short words for what happens, invariants after every event."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.core.lifecycle.invariants import check

TWO_STAGES = Plan.of([(0, 1, "a"), (2, 3, "b")])
ONE_STAGE = Plan.of([(0, 3, "a")])
ON_B = Plan.of([(0, 3, "b")])

Instruction = TypeVar("Instruction")


class Daemon:
    """A lifecycle, a clock, and everything that it has asked for since the last `clear`."""

    def __init__(
        self,
        places: Sequence[str] = ("a", "b"),
        slots: int = 2,
        needs: tuple[frozenset[int], ...] = (),
        down: Collection[str] = (),
        rules: PlanRules | None = None,
        **limits: Any,
    ) -> None:
        rules = rules or PlanRules(4, tuple(places), needs=needs)
        self.lifecycle = Lifecycle(rules, slots, Policy(**limits), down)
        self.now = 0.0
        self.made: list[do.Instruction] = []
        self.frame_count = 0
        self.proposal_count = 0
        self.feed(ev.Tick())

    def feed(self, event: ev.Event, after_s: float = 0.0) -> list[do.Instruction]:
        self.now += after_s
        made = self.lifecycle.handle(event, self.now)
        check(self.lifecycle, made)
        self.made += made
        return made

    def all(self, kind: type[Instruction]) -> list[Instruction]:
        return [instruction for instruction in self.made if isinstance(instruction, kind)]

    def clear(self) -> None:
        self.made.clear()

    def incarnation(self, place: str) -> int:
        number = self.lifecycle.places.by_name[place].incarnation
        assert number is not None
        return number

    def connect(self, *places: str) -> None:
        for place in places:
            self.feed(ev.WorkerReady(self.incarnation(place)))

    def kill(self, place: str, running: int | None = None, after_s: float = 0.0, *, crashed: bool = False) -> None:
        self.feed(ev.WorkerGone(self.incarnation(place), running, "killed", crashed=crashed), after_s)

    def lose(self, place: str, running: int | None = None, after_s: float = 0.0) -> None:
        """The place is taken down, and its process ends."""
        self.feed(ev.PlaceDown(place), after_s)
        self.kill(place, running)

    def restart(self, place: str) -> None:
        """The place's next process comes up and loads what it is asked for."""
        self.feed(ev.Tick())
        self.connect(place)
        self.prepare(place)

    def propose(
        self,
        plan: Plan,
        owner: ev.Owner = ev.Owner.CLIENT,
        under: int | None = None,
        superseded: ev.Superseded = ev.Superseded.RETIRES,
    ) -> int:
        self.proposal_count += 1
        self.feed(ev.PlanProposed(owner, self.proposal_count, plan, under, superseded))
        return self.proposal_count

    def prepare(self, *places: str) -> None:
        for place in places:
            worker = self.lifecycle.places.workers[self.incarnation(place)]
            for epoch, stage in list(worker.loading):
                self.feed(ev.StagePrepared(epoch, stage, worker.incarnation))

    def go_live(self, plan: Plan, superseded: ev.Superseded = ev.Superseded.RETIRES) -> None:
        self.propose(plan, superseded=superseded)
        self.prepare(*plan.leads)

    def send(self, stream: str | None = None, client: str = "c", size_bytes: int = 1, **fields: Any) -> int:
        self.frame_count += 1
        self.feed(ev.FrameArrived(self.frame_count, client, stream, size_bytes, **fields))
        return self.frame_count

    def parts(self, frame: int) -> dict[int, ev.Descriptor]:
        """Those that are out, by stage; none once the frame has left."""
        known = self.lifecycle.frames.by_number.get(frame)
        return {} if known is None else dict(known.out)

    def part(self, frame: int) -> ev.Descriptor:
        """The only one that is out."""
        (part,) = self.parts(frame).values()
        return part

    def finish(self, frame: int) -> None:
        """Run every part that the frame has left."""
        while parts := self.parts(frame):
            self.feed(ev.PartDone(next(iter(parts.values()))))

    def answers(self) -> list[tuple[int, Error | None]]:
        return [(delivery.frame, delivery.kind) for delivery in self.all(do.Deliver)]


def live(plan: Plan = TWO_STAGES, **setup: Any) -> Daemon:
    daemon = Daemon(**setup)
    daemon.connect(*daemon.lifecycle.places.by_name)
    daemon.go_live(plan)
    daemon.clear()
    return daemon
