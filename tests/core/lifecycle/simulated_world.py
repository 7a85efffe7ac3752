"""A world in virtual time around one `Lifecycle`: clients, worker processes, an arena, and an adversary.

The lifecycle's instructions change the simulated world at once; what the world answers travels as messages that
arrive in any order, twice, or long after their sender's death. A worker may write the slot of a part that it was
given at any time until it is really dead, which is why the world, and not the lifecycle, decides when that is.

The world keeps its own books, from the instructions alone, and compares them with the promises of R1 to R3:

- a tensor in the arena is the tag `(frame, epoch, attempt)` of what made it, and each part looks at what it reads, so
  an answer shows whether it was computed wholly from its own frame's input by one epoch;
- what was promised of parts is in `part_books.py`;
- each frame is refused once, or answered once, in its stream's order, with an error only if it had a cause;
- each proposal is settled once, epoch and incarnation numbers grow, nothing is left behind at the end.

`invariants.check` runs after every event, unless asked not to. A broken promise raises `BrokenPromise`
with the seed and the last events: `run(seed)` repeats exactly that interleaving.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.tables import UnknownTransition
from shisha_rt.core.lifecycle.turns import PATIENCE
from shisha_rt.errors import Code, Error
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.core.lifecycle.invariants import check
from tests.core.lifecycle.part_books import PartBooks
from tests.core.lifecycle.random_plans import CHAIN, LAYERS, plain_plan, random_needs, random_plan
from tests.core.lifecycle.simulated_workers import Workers

_TRACE_KEPT: Final = 40
_MOST_STEPS_TO_REST: Final = 3000
_MOST_ROUNDS_UNDER_LOAD: Final = 8000
_MOST_BEFORE: Final = 500
_PLANS_UNDER_LOAD: Final = 3
_IN_FLIGHT_UNDER_LOAD: Final = 32
_ROUND_S: Final = 0.002

PRIORITIES = ev.DEFAULT_PRIORITY, ev.DEFAULT_PRIORITY, 1, 9
StreamKey = tuple[Hashable, str | None]


class BrokenPromise(AssertionError):
    """The lifecycle broke a rule; the message tells which, in which interleaving, and what went before."""


@dataclass(slots=True, eq=False)
class Request:
    """A client's frame and all that may explain how it ended."""

    number: int
    stream: StreamKey
    deadline_s: float | None
    priority: int = ev.DEFAULT_PRIORITY
    outcome: str = "sent"
    cancelled: bool = False
    failed: bool = False
    filled: bool = False
    collected: bool = False
    lent_in: bool = False
    lent_out: bool = False
    read: bool = False
    frames: int = 1


def random_policy(rng: random.Random) -> Policy:
    """Small limits, so that a short run meets all of them."""
    return Policy(
        max_in_flight=rng.choice((3, 6, 12)),
        waiting_bytes=rng.choice((30, 100, 1000)),
        descriptors_per_worker=rng.choice((1, 2, 2)),
        waiting_plans=rng.choice((1, 3)),
        prepare_s=5.0,
        start_s=5.0,
        retire_s=rng.choice((0.2, 60.0)),
        away_s=rng.choice((0.3, 2.0)),
        deaths_in_window=rng.choice((1, 3)),
        death_window_s=10.0,
        restart_delay_s=0.1,
        restart_delay_max_s=1.0,
        batch_delay_s=rng.choice((0.0, 0.0, 0.3)),
    )


class World:
    """One random interleaving: `run` lets the adversary act, then heals everything and looks at what is left.

    `under_load`: in between, clients send as many frames as are admitted, while plans change.
    """

    def __init__(
        self,
        seed: int,
        lifecycle: Callable[..., Lifecycle] = Lifecycle,
        *,
        validate: bool = True,
        under_load: bool = False,
    ) -> None:
        self.seed = seed
        self.validate = validate
        self.under_load = under_load
        self.rng = random.Random(seed)
        self.more = more = random.Random(f"more {seed}")  # of its own: what the other one draws stays as it was
        self.place_names = [f"p{i}" for i in range(self.rng.randint(1, 2 if under_load else 5))]
        self.slot_count = self.rng.randint(1, 5) + 3 * under_load
        self.policy = replace(
            random_policy(self.rng),
            target_s=more.choice((math.inf, math.inf, 0.01)),
            crashes_per_stage=1,
            starts_at_once=more.choice((1, 8)),
            outage_s=random.Random(f"outage {seed}").choice((math.inf, 0.3, 1.0)),
        )
        if under_load:  # frames of full batches wait at all times
            most = _IN_FLIGHT_UNDER_LOAD
            self.policy = replace(self.policy, max_in_flight=most, waiting_bytes=1000, target_s=math.inf)
        self.devices = dict.fromkeys(self.place_names, ("d0", "d1")) if self.rng.random() < 0.3 else {}
        self.needs = random_needs(self.rng)
        self.most_batch = self.rng.choice((2, 4) if under_load else (1, 1, 2, 4))
        rules = PlanRules(LAYERS, tuple(self.place_names), None, (2,) * LAYERS, self.devices, self.needs)
        rules = replace(rules, most_batch=self.most_batch)
        down = more.sample(self.place_names, more.randrange(len(self.place_names))) if more.random() < 0.2 else []
        self.lifecycle = lifecycle(rules, self.slot_count, self.policy, down)
        self.slot_count *= self.most_batch
        self.now = 0.0
        self.healing = self.draining = self.stopped = self.over = self.replan_wanted = False
        self.trace: deque[tuple[float, ev.Event, list[do.Instruction]]] = deque(maxlen=_TRACE_KEPT)
        self.old_replies: list[ev.Event] = []
        self.requests: dict[int, Request] = {}
        self.accepted: dict[int, Request] = {}  # and not answered yet
        self.answered = 0
        self.owed: dict[StreamKey, deque[int]] = {}
        self.last_sequence: dict[StreamKey, int] = {}
        self.could_run_s, self.gone_since = 0.0, 0
        self.outlasted: set[int] = set()  # frames that waited while an outage was too long, answered then or later
        self.passed: Counter[tuple[int, Hashable]] = Counter()
        self.plans: dict[int, Plan] = {}
        self.workers = Workers(self.rng, self.slot_count, self.plans, self.needs)
        self.workers.unequal = True
        self.workers.crashes = more
        if self.rng.random() < 0.3 or under_load:
            self.workers.layer_s = {name: self.rng.choice((1e-3, 1e-3, 4e-3)) for name in self.place_names}
        elif self.most_batch > 2 and more.random() < 0.5:  # batches that are not full wait for more frames
            self.workers.layer_s, self.workers.run_s = dict.fromkeys(self.place_names, 1e-3), 3.0
        self.parts = PartBooks(self.lifecycle.places, self.workers, self.policy, self.plans)
        self.poisons = self.rng.random() < 0.3
        self.taken_down: set[str] = set()
        self.epochs: dict[int, str] = {}
        self.proposed = self.led = 0
        self.settled: Counter[str] = Counter()
        self.unsettled: dict[int, ev.PlanProposed] = {}
        self.unplaced: list[do.PlaceOperators] = []
        self.events = 0
        self._carry_out: dict[type, Callable[[Any], None]] = {
            do.Refuse: self._refuse,
            do.Fill: self._fill,
            do.ReadLent: self._read_lent,
            do.RunPart: self._run_part,
            do.Collect: self._collect,
            do.Deliver: self._deliver,
            do.Start: self._start,
            do.Kill: self._kill,
            do.PrepareStage: self.workers.prepare,
            do.RetireEpoch: self.workers.retire,
            do.PlaceOperators: self.unplaced.append,
            do.Settled: self._settle,
            do.EpochStarted: self._epoch_started,
            do.EpochEnded: self._epoch_ended,
            do.Replan: self._replan,
            do.PlaceAway: self.parts.note_place,
            do.PlaceBack: self.parts.note_place,
            do.PlaceReleased: self._released,
            do.GivenUp: lambda _: None,
        }

    # --- the run ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        rng = self.rng
        unrest = rng.choice((0, 1, 2))
        workers = self.workers
        faults = (workers.die, workers.die, self.hang, workers.scribble, self.place_down, self.lose_place)
        acts: list[Callable[[], None]] = [
            *[self.send_frame] * 6,
            *[workers.let_work] * 20,
            *[self.deliver_message] * 18,
            *[self.pass_time] * 4,
            *[self.propose] * rng.choice((1, 3)),
            *[self.place] * 3,
            *[self.lead] * 2,
            self.let_go,
            self.replan,
            self.cancel,
            self.repeat_reply,
            *(*faults, self.place_up, self.place_up) * unrest,
        ]
        more = [*[self.reachable] * 4, *[self.send_request] * 8, *[self.drain] * (self.more.random() < 0.1)]
        end = rng.choice((self.drain, self.stop, self.pass_time, self.pass_time))
        end = self._go_on_under_load if self.under_load else end
        try:
            self.feed(ev.Tick())
            if rng.random() < 0.7:
                self._go_live()
            for _ in range(rng.randint(20, 160)):
                rng.choice(acts)()
                if self.more.random() < 0.1:
                    self.more.choice(more)()
            end()
            self._come_to_rest()
            self._look_at_what_is_left()
        except (AssertionError, UnknownTransition, LookupError, ValueError) as error:
            raise BrokenPromise(self._report(error)) from error

    def _go_live(self) -> None:
        """Begin as daemons do on good days: workers come up, and a plan goes live."""
        self.propose()
        for _ in range(6):
            for process in self.workers.alive:
                self.workers.work(process)
            while self.workers.messages:
                self.deliver_message()

    def feed(self, event: ev.Event) -> None:
        """One event to the lifecycle; its instructions are carried out, in order, before anything else."""
        self.events += 1
        self.gone_since += isinstance(event, ev.WorkerGone)
        self.parts.hear(event)
        instructions = self.lifecycle.handle(event, self.now)
        self.trace.append((self.now, event, instructions))
        too_long = self.now >= self.could_run_s + self.policy.outage_s
        if too_long and self.gone_since >= self.policy.outage_deaths:
            self.outlasted.update(self.accepted)
        if isinstance(event, ev.FrameArrived) and not any(isinstance(made, do.Refuse) for made in instructions):
            self._accept(self.requests[event.frame])
        for instruction in instructions:
            self._carry_out[type(instruction)](instruction)
        if self.lifecycle.can_run:
            self.could_run_s, self.gone_since = self.now, 0
        self.parts.check_shares()
        if self.validate:
            check(self.lifecycle, instructions)
        lives = [number for number, state in self.epochs.items() if state == "live"]
        assert len(lives) <= 2, f"epochs {lives} live at once"
        undelivered = self.lifecycle.frames.streams.undelivered
        assert undelivered == len(self.accepted), f"{undelivered} frames are unanswered, should be {len(self.accepted)}"

    def _report(self, error: Exception) -> str:
        lines = [
            f"{now:8.3f} {event}\n" + "".join(f"           -> {i}\n" for i in made) for now, event, made in self.trace
        ]
        setup = f"places {self.place_names}, {self.slot_count} slots, {self.policy}"
        return f"seed {self.seed}: {type(error).__name__}: {error}\n{setup}\n{''.join(lines)}"

    # --- what clients and operators do ------------------------------------------------------------------------

    def send_frame(self) -> None:
        rng = self.rng
        number = len(self.requests) + 1
        stream: StreamKey = (rng.choice(("c0", "c1")), rng.choice((None, "a", "b")))
        last = self.last_sequence.get(stream)
        sequence = None
        if stream[1] is not None and rng.random() < 0.6:
            sequence = rng.randint(0, 9) if last is None or rng.random() < 0.15 else last + 1
        bad = sequence is not None and last is not None and sequence != last + 1
        deadline = rng.choice((None, None, None, None, self.now + rng.random() * 4, self.now + 4, self.now))
        lent = rng.random() < 0.3, rng.random() < 0.3
        request = self.requests[number] = Request(number, stream, deadline, lent_in=lent[0], lent_out=lent[1])
        if self.poisons and rng.random() < 0.5:
            self.workers.poison[number] = set(rng.sample(range(LAYERS), rng.randint(1, 4)))
        shape = self.parts.shapes[number] = 0 if self.healing else rng.choice((0, 0, 0, 1))
        priority = request.priority = rng.choice(PRIORITIES)
        size_bytes = rng.randint(1, 40)
        self.feed(
            ev.FrameArrived(number, *stream, size_bytes, sequence, deadline, *lent, shape=shape, priority=priority)
        )
        if request.outcome == "refused":
            return
        assert not bad, f"frame {number} was accepted with sequence {sequence} after {last}"
        assert not self.draining, f"frame {number} was accepted while draining"
        if sequence is not None:
            self.last_sequence[stream] = sequence

    def send_request(self) -> None:
        """Several frames of one request: all of them are refused, with the first, or none."""
        more, count = self.more, self.more.randint(2, 4)
        stream: StreamKey = (more.choice(("c0", "c1")), more.choice((None, "a", "b")))
        deadline, size_bytes = more.choice((None, None, self.now + 2)), more.randint(1, 14)
        for frames in (count, *[0] * (count - 1)):
            number = len(self.requests) + 1
            request = self.requests[number] = Request(number, stream, deadline, frames=frames)
            self.parts.shapes[number] = 0
            self.feed(ev.FrameArrived(number, *stream, size_bytes, deadline_s=deadline, frames=frames))
            if request.outcome == "refused":
                assert frames, f"frame {number} is refused, and those of its request before it were accepted"
                return
        self.parts.seen["request of several"] += 1

    def cancel(self) -> None:
        number = self.rng.randint(1, len(self.requests) + 1)
        if number in self.requests:
            self.requests[number].cancelled = True
        self.feed(ev.FrameCancelled(number))

    def propose(self) -> None:
        """A plan over any places, whether they are up or not; half the time over those that may be planned on."""
        rng = self.rng
        sober = self.healing or rng.random() < 0.5
        choice = list(self.lifecycle.places.available) if sober else list(self.place_names)
        is_plain = self.needs == CHAIN and rng.random() < 0.3
        plan = plain_plan(rng, choice) if is_plain else random_plan(rng, choice, self.needs, self.most_batch)
        if not self.healing and rng.random() < 0.1:
            plan = Plan(plan.stages[1:])  # layers are missing, or all of them: the gate sees to that
        self.proposed += 1
        owner = ev.Owner.CLIENT if self.healing else rng.choice(list(ev.Owner))
        lives = [number for number, state in self.epochs.items() if state == "live"]
        under = rng.choice((None, *lives, 1)) if rng.random() < 0.1 else self._led
        superseded = rng.choice((*ev.Superseded,))
        event = self.unsettled[self.proposed] = ev.PlanProposed(owner, self.proposed, plan, under, superseded)
        self.feed(event)

    @property
    def _led(self) -> int | None:
        """The epoch that new frames take."""
        return None if self.lifecycle.live is None else self.lifecycle.live[0]

    def lead(self) -> None:
        """New frames to the other one of two plans that are compared, or to some epoch that is not there."""
        beside = self.lifecycle.beside
        if beside is None or self.rng.random() < 0.1:
            led, number = self._led, self.rng.randint(1, len(self.epochs) + 2)
            self.feed(ev.Lead(number))
            assert self._led in (led, beside and beside[0]), f"epoch {number} is led to, which is not beside {led}"
            return
        self.feed(ev.Lead(beside[0]))
        self.led += self._led == beside[0]  # else it has lost a place in this moment

    def let_go(self) -> None:
        self.feed(ev.LetGo())
        assert self.lifecycle.beside is None, "a comparison goes on after its end"

    def replan(self) -> None:
        if self.replan_wanted:
            self.replan_wanted = False
            self.propose()

    def place(self) -> None:
        """What the placer answers: devices, ones that are not there, or that it cannot; perhaps twice."""
        if not self.unplaced:
            return
        asked = self.unplaced[0] if self.rng.random() < 0.05 else self.unplaced.pop(0)
        if not self.healing and self.rng.random() < 0.1:
            self.feed(ev.PlanNotPlaced(asked.proposed, "no device can run it"))
            return
        names = ("d0", "d1") if self.healing or self.rng.random() < 0.9 else ("d0", "d2")
        stages = asked.proposed.plan.stages
        placed = [replace(s, placement=tuple(self.rng.choices(names, k=2 * s.layer_count))) for s in stages]
        self.feed(ev.PlanPlaced(asked.proposed, Plan(tuple(placed))))

    def hang(self) -> None:
        """A worker hangs; the watch may see it, and the lifecycle have it killed."""
        process = self.workers.hang()
        if process is not None and self.rng.random() < 0.7:
            self.feed(ev.WorkerHung(process.incarnation, "no sign of life"))

    def place_down(self) -> None:
        self._take_down(self.rng.choice(self.place_names))

    def _take_down(self, place: str) -> None:
        if self.lifecycle.available != (place,):
            self.taken_down.add(place)
        self.feed(ev.PlaceDown(place))

    def lose_place(self) -> None:
        """A place that leaves planning with its process: frames of its plan have to start over elsewhere."""
        process = self.workers.some_process()
        if process is not None:
            self.workers.end(process)
            self._take_down(process.place)

    def place_up(self) -> None:
        place = self.rng.choice(self.place_names)
        self.taken_down.discard(place)
        self.feed(ev.PlaceUp(place))

    def reachable(self) -> None:
        self.feed(ev.PlaceReachable(self.more.choice(self.place_names)))

    def drain(self) -> None:
        self.draining = True
        self.feed(ev.Drain())

    def stop(self) -> None:
        self.draining = self.stopped = True
        for process in self.workers.alive:
            self.workers.end(process)
        self.feed(ev.Stop())
        self.over = True

    # --- what time, the network and workers do ----------------------------------------------------------------

    def pass_time(self) -> None:
        wake = self.lifecycle.next_wake_s()
        assert wake is not None or not self.healing, "nothing is under way, frames wait, and no time is asked for"
        if wake is not None and (self.healing or self.rng.random() < 0.25):
            self.now = max(self.now, wake)
        else:
            self.now += self.rng.random() * 0.4
        self.feed(ev.Tick())
        wake = self.lifecycle.next_wake_s()
        assert wake is None or wake > self.now, f"asks to be woken at {wake}, which is past: the daemon would spin"

    def deliver_message(self) -> None:
        if not self.workers.messages:
            return
        message = self.workers.messages.pop(self.rng.randrange(len(self.workers.messages)))
        if isinstance(message, ev.WorkerGone):
            self.workers.processes[message.incarnation].parts.clear()
        elif isinstance(message, ev.PartDone | ev.PartFailed):
            self.old_replies.append(message)
            part = message.descriptor
            failed = isinstance(message, ev.PartFailed) and self.parts.has(part) and not part.beside
            self.requests[part.frame].failed |= failed
        self.feed(message)

    def repeat_reply(self) -> None:
        """A reply that was delivered already, perhaps to an incarnation that is long gone."""
        if self.old_replies:
            self.feed(self.rng.choice(self.old_replies))

    def _fill(self, fill: do.Fill) -> None:
        request = self.requests[fill.frame]
        assert request.outcome == "accepted", f"frame {fill.frame} is filled after its end"
        request.filled = True
        self._take_turn(request)
        self.parts.fill(fill)
        self.workers.fill(fill, lent=request.lent_in)

    def _take_turn(self, filled: Request) -> None:
        """Each client in turn gets a slot: none gets a second while another's frame, as urgent, goes on waiting.

        Frames of a stream go by the priority of its first one. However urgent others are, each has its turn.
        """
        heads: dict[Hashable, Request] = {}
        for request in self.accepted.values():
            decided = request.cancelled or (request.deadline_s is not None and request.deadline_s <= self.now)
            if not request.filled and not decided:
                heads.setdefault((request.stream, request.stream[1] or request.priority), request)
        client = filled.stream[0]
        first: dict[tuple[Hashable, int], Request] = {}
        for head in heads.values():
            if head.stream[0] != client:
                first.setdefault((head.stream[0], head.priority), head)
        waiting = {head.number for head in first.values()}
        self.passed = Counter({by: times for by, times in self.passed.items() if by[0] in waiting})
        for head in first.values():
            by = client if head.priority == filled.priority else "others"
            self.passed[head.number, by] += 1
            if by == client:
                self.passed[head.number, "others"] = 0  # its priority had a turn, if not it
            most = 1 if by == client else PATIENCE + len(PRIORITIES)
            assert self.passed[head.number, by] <= most, f"{by} have {most + 1} turns while {head} waits"

    def _read_lent(self, read: do.ReadLent) -> None:
        request = self.requests[read.frame]
        assert request.lent_in, f"{read}, which lends nothing"
        assert not request.read, f"{read} a second time"
        request.read = True
        self.parts.seen["read by the daemon"] += 1
        self.parts.fill(read)
        self.workers.read_lent(read.slot)

    def _run_part(self, run: do.RunPart) -> None:
        of_each: tuple[do.RunPart | do.Shared, ...] = (run, *run.beside)
        for frame, copies in zip(run.descriptor.frames, of_each, strict=True):
            request = self.requests[frame]
            assert request.lent_in or not copies.reads, f"{run}, which lends nothing to read"
            assert request.lent_out or not copies.writes, f"{run}, which lends nothing to write"
            assert not (request.read and copies.reads), f"{run}, which has been read"
            assert request.outcome == "accepted", f"{run} is of a frame that is answered"
        self.parts.run(run)
        self.workers.give(run)

    def _collect(self, collect: do.Collect) -> None:
        request = self.requests[collect.frame]
        assert request.outcome == "accepted", f"frame {collect.frame} is collected after its end: {request.outcome}"
        assert not request.collected, f"frame {collect.frame} is collected twice"
        late = request.deadline_s is not None and request.deadline_s <= self.now
        assert not late, f"frame {collect.frame} is collected after its deadline"
        assert self.epochs[collect.epoch] == "live", f"{collect} is from an epoch that is {self.epochs[collect.epoch]}"
        tags = self.workers.answer(collect.slot)
        whole = {tag is not None and tag[:2] == (collect.frame, collect.epoch) and tag[2] >= 0 for tag in tags}
        assert len(tags) == 1, f"answer of frame {collect.frame} is of several attempts: {tags}"
        assert whole == {True}, f"answer of frame {collect.frame} in epoch {collect.epoch} is {tags}"
        written = collect.frame in self.workers.written
        assert written or not (request.lent_out and collect.written), f"{collect}, and no worker has"
        request.collected = True

    # --- carrying out the other instructions ------------------------------------------------------------------

    def _accept(self, request: Request) -> None:
        request.outcome = "accepted"
        self.accepted[request.number] = request
        if request.stream[1] is not None:
            self.owed.setdefault(request.stream, deque()).append(request.number)

    def _refuse(self, refuse: do.Refuse) -> None:
        request = self.requests[refuse.frame]
        assert request.outcome == "sent", f"frame {refuse.frame} is refused after it was {request.outcome}"
        request.outcome = "refused"
        accepted = [*self.accepted.values()]
        self.parts.seen[refuse.kind.value] += 1
        if refuse.kind is not Error.TARGET_OUT_OF_REACH and request.frames == 1:
            accepted = [other for other in accepted if other.stream[0] == request.stream[0]]
        assert (
            accepted or refuse.kind.code is not Code.RESOURCE_EXHAUSTED or request.frames > self.policy.max_in_flight
        ), f"{refuse} for a client that has nothing in flight"

    def _deliver(self, deliver: do.Deliver) -> None:
        request = self.requests[deliver.frame]
        assert request.outcome == "accepted", f"frame {deliver.frame} is answered after it was {request.outcome}"
        if request.stream[1] is not None:
            first = self.owed[request.stream].popleft()
            assert first == deliver.frame, f"frame {deliver.frame} is answered before {first} of the same stream"
        lent = request.lent_out and self.workers.may_write(deliver.frame)
        assert not lent, f"frame {deliver.frame} is answered while a worker may write to what its client lends"
        request.outcome = "answered"
        del self.accepted[request.number]
        self.answered += 1
        self.parts.seen[str(deliver.kind)] += 1
        cause = {
            None: request.collected,
            Error.CANCELLED: request.cancelled,
            Error.DEADLINE_PASSED: request.deadline_s is not None and request.deadline_s <= self.now,
            Error.STOPPED: self.stopped,
            Error.TASK_FAILED: request.failed,
            Error.WORKER_DIED: self.parts.deaths[deliver.frame] >= self.policy.deaths_per_frame,
            Error.NO_WORKER: deliver.frame in self.outlasted,
        }
        assert cause.get(deliver.kind), f"{deliver} has no cause"
        assert (deliver.kind is None) == request.collected, f"{deliver}, collected: {request.collected}"

    def _start(self, start: do.Start) -> None:
        assert not self.over, f"{start.place} gets a process after the end"
        starting = sum(not process.ready for process in self.workers.alive)
        assert starting < self.policy.starts_at_once, f"{start} beside {starting} that are starting"
        self.workers.start(start, fails=not self.healing and self.rng.random() < 0.05)

    def _kill(self, kill: do.Kill) -> None:
        self.parts.kill(kill)
        self.workers.doom(kill)

    def _released(self, released: do.PlaceReleased) -> None:
        place = released.place
        assert place in self.taken_down, f"{place} is released, and nobody took it down"
        self.taken_down.remove(place)
        alive = [worker.incarnation for worker in self.workers.alive if worker.place == place]
        assert not alive, f"{place} is released while worker {alive} lives"
        lasting = [number for number, state in self.epochs.items() if state != "ended"]
        using = [number for number in lasting if place in self.plans[number].places]
        assert not using, f"{place} is released while epochs {using} have it"
        self.parts.seen["released"] += 1

    def _epoch_started(self, started: do.EpochStarted) -> None:
        assert started.epoch > max(self.epochs, default=0), f"epoch {started.epoch} is not new"
        preparing = [number for number, state in self.epochs.items() if state == "preparing"]
        assert not preparing, f"epochs {preparing} and {started.epoch} are prepared at once"
        proposed = self.unsettled[started.proposed.number]
        lives = [number for number, state in self.epochs.items() if state == "live"]
        holds = proposed.owner is ev.Owner.CLIENT or proposed.under == self._led
        assert holds, f"{proposed} is out of date: epochs {lives} are live"
        placed = all(len(s.placement) == 2 * s.layer_count and "d2" not in s.placement for s in started.plan.stages)
        assert placed or not self.devices, f"{started} has no devices for its operators"
        assert started.plan == proposed.plan, f"{started} is not what was proposed: {proposed}"
        self.epochs[started.epoch] = "preparing"
        self.plans[started.epoch] = started.plan

    def _epoch_ended(self, ended: do.EpochEnded) -> None:
        assert self.epochs[ended.epoch] in ("live", "dropped"), f"epoch {ended.epoch} ends twice"
        self.epochs[ended.epoch] = "ended"
        self.workers.punch(self.lifecycle.epochs.passed_by_none_but(ended.plan, self.workers.passing))
        for process in self.workers.alive:
            has = any(number == ended.epoch for number, _ in (*process.loaded, *process.building))
            assert not has, f"epoch {ended.epoch} ended, worker {process.incarnation} was not told"

    def _settle(self, settled: do.Settled) -> None:
        number = settled.proposed.number
        assert number in self.unsettled, f"proposal {number} is settled twice"
        assert settled.reason, f"proposal {number} is {settled.ending} without a reason"
        proposed = self.unsettled.pop(number)
        assert (settled.proposed.owner, settled.plan) == (proposed.owner, proposed.plan), f"{settled} of {proposed}"
        self.settled[settled.ending] += 1
        if settled.epoch is not None:
            assert self.epochs[settled.epoch] == "preparing", f"{settled}, it is {self.epochs[settled.epoch]}"
            self.epochs[settled.epoch] = settled.ending.value
        if settled.ending is do.Ending.LIVE:
            assert settled.epoch is not None
            processes = self.workers.processes.values()
            loaded = {
                (worker.place, stage)
                for worker in processes
                for epoch, stage in worker.loaded
                if epoch == settled.epoch
            }
            stages = enumerate(self.plans[settled.epoch].stages)
            assert loaded == {(lead, index) for index, stage in stages for lead in stage.leads}, f"{settled}: {loaded}"

    def _replan(self, replan: do.Replan) -> None:
        assert not self.over, "a plan is asked for after the end"
        self.replan_wanted = True

    # --- the end ----------------------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """No more faults: the doomed die, messages arrive, workers work, and time passes when nothing else can."""
        self._heal()
        for _ in range(_MOST_STEPS_TO_REST):
            if self.lifecycle.beside is not None:
                self.let_go()
            for process in self.workers.alive:
                self.workers.work(process)
            if self.workers.messages:
                self.deliver_message()
            elif self.unplaced:
                self.place()
            elif self.replan_wanted and not self.stopped:
                self.replan()
            elif self._at_rest():
                return
            elif not any(worker.parts or worker.building for worker in self.workers.alive):
                self.pass_time()
        raise AssertionError("the daemon does not come to rest")

    def _go_on_under_load(self) -> None:
        """No more faults, but frames come without pause, and plans change: what was accepted before is answered, and
        what was proposed is settled, in a bounded number of rounds nevertheless.
        """
        self._heal()
        self.poisons = False
        for _ in range(_PLANS_UNDER_LOAD):
            owed, before = {*self.accepted}, self.answered
            self.propose()
            for _ in range(_MOST_ROUNDS_UNDER_LOAD):
                owed &= self.accepted.keys()
                if not owed and not self.unsettled:
                    break
                self._go_round_under_load()
                went = self.answered - before
                assert went <= _MOST_BEFORE, f"{owed} and {[*self.unsettled]} wait, {went} frames were answered"
            else:
                raise AssertionError(f"{owed} and {[*self.unsettled]} wait while frames come")

    def _go_round_under_load(self) -> None:
        """Workers take a step, slow ones seldom, and all that was said arrives; clients send what is admitted."""
        for process in self.workers.alive:
            if self.rng.random() < 1e-3 / self.workers.layer_s[process.place]:
                self.workers.work(process)
        while self.workers.messages:
            self.deliver_message()
        self.replan()
        while self.unplaced:
            self.place()
        if self.rng.random() < 0.1:
            self.rng.choice((self.cancel, self.lead))()
        self.send_frame()
        while self.requests[len(self.requests)].outcome != "refused":
            self.send_frame()
        busy = any(worker.parts or worker.building or not worker.ready for worker in self.workers.alive)
        wake = self.lifecycle.next_wake_s()
        self.now = self.now + _ROUND_S if busy or wake is None else max(self.now, wake)
        self.feed(ev.Tick())

    def _heal(self) -> None:
        self.healing = self.workers.healing = True
        for process in self.workers.alive:
            if process.hung:
                self.workers.end(process)

    def _at_rest(self) -> bool:
        epochs = self.lifecycle.epochs
        settled = epochs.preparing is None and not epochs.proposals
        return self.lifecycle.idle and settled and not any(worker.parts for worker in self.workers.alive)

    def _look_at_what_is_left(self) -> None:
        lifecycle, frames = self.lifecycle, self.lifecycle.frames
        open_ends = [
            request.number for request in self.requests.values() if request.outcome not in ("refused", "answered")
        ]
        assert not open_ends, f"frames {open_ends} were never answered"
        assert not self.unsettled, f"proposals {self.unsettled} were never settled"
        assert sum(self.settled.values()) == self.proposed, f"{self.settled} of {self.proposed} proposals"
        assert not frames.by_number, f"frames {list(frames.by_number)} are remembered"
        assert sorted(frames.free_slots) == list(range(self.slot_count)), f"free slots {frames.free_slots}"
        assert not frames.streams.turns.levels, "streams wait for their turn with nothing to send"
        queued = [part for epoch in lifecycle.epochs.live.values() for pool in epoch.pools for part in pool.queue]
        assert not queued, f"{queued} wait for workers"
        lives = {number for number, state in self.epochs.items() if state == "live"}
        assert lives == set(lifecycle.epochs.live), f"epochs {lives} live, the lifecycle has {lifecycle.epochs.live}"
        assert len(lives) <= 1, f"epochs {lives} live at rest"
        assert set(self.epochs.values()) <= {"live", "ended"}, f"epochs were left behind: {self.epochs}"


def run(
    seed: int, lifecycle: Callable[..., Lifecycle] = Lifecycle, *, validate: bool = True, under_load: bool = False
) -> World:
    """Play the interleaving of `seed`; raises `BrokenPromise` if the lifecycle does not keep its promises.

    Without `validate` only what shows from outside, in the instructions, is looked at.
    """
    world = World(seed, lifecycle, validate=validate, under_load=under_load)
    world.run()
    return world
