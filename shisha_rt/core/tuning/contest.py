"""Candidates tried live against the plan that serves, one after the other, for one objective at a time.

Each challenger is made live beside the plan that serves, and both take turns with frames (`duel`). The better one keeps
serving, and the next challenger is compared with it. A comparison needs its objective's load: queued frames for
throughput, frames one at a time for latency. Without that load nothing is compared; if it does not come, the search
goes by service times instead. What is to be compared, and what has been found out, is `findings`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Lead, LetGo, Owner, Superseded
from shisha_rt.core.lifecycle.instructions import Ending, Settled
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.awaited_load import AwaitedLoad
from shisha_rt.core.tuning.candidates import Candidate, candidates, frames_to_fill, has_batches
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.duel import Duel, DuelResult, Verdict
from shisha_rt.core.tuning.findings import Findings
from shisha_rt.core.tuning.instructions import PlanningOutbox
from shisha_rt.core.tuning.state import ATTEMPTS, Intent, Purpose, Serving
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective

_FLOWS_S: Final = 1.0
"""Frames count as coming if the last one came within this time."""

_FLOWS_FIRST_S: Final = 4.0
"""Frames must come for so long before plans are compared again, as other programs may begin together with them."""

_SERVED: Final = "the plan that served"


@dataclass(slots=True)
class Contest:
    """Candidates for `objective` over the places of `over`. `serving`: the best so far, called `name`. `left`: those
    still to be compared; `known`: their plans, and those compared before. `value`: speed of each judged plan, relative
    to the plan that served first. `filled`: plans with batches that were judged while enough frames were in flight to
    fill these. `in_flight`: the most frames in flight during the present challenger's duel. `tried_before`: how many
    plans had been judged when the comparison was last resumed. `others_ratio`: as in `Winner`, so far. `is_whole`: it
    is of all candidates.
    """

    objective: Objective
    over: tuple[str, ...]
    serving: Plan
    name: str
    left: deque[Candidate] = field(default_factory=deque)
    challenger: Candidate | None = None
    epochs: tuple[int, int] = (0, 0)
    duel: Duel | None = None
    value: dict[Plan, float] = field(default_factory=dict)
    known: set[Plan] = field(default_factory=set)
    filled: set[Plan] = field(default_factory=set)
    in_flight: int = 0
    tried_before: int = 0
    others_ratio: float = 0.0
    is_whole: bool = False

    @property
    def tried(self) -> int:
        """How many candidates have been judged, the first included."""
        return len(self.known) - len(self.left) - (self.challenger is not None)


class Contests:
    """`of_batches`: the last comparison was between batch sizes only. `warm_up`: answers skipped after a change."""

    def __init__(
        self, serving: Serving, choice: Choice, outbox: PlanningOutbox, findings: Findings, warm_up: int
    ) -> None:
        self.running: Contest | None = None
        self.of_batches = False
        self._serving, self._choice, self._outbox = serving, choice, outbox
        self._findings = findings
        self._warm_up = warm_up
        self._load = AwaitedLoad()
        self._unfinished: dict[tuple[Objective, tuple[str, ...]], Contest] = {}  # comparisons whose load went away

    # --- waiting for load -------------------------------------------------------------------------------------

    def quiet_s(self, now_s: float) -> float:
        """Seconds since the last frame that the comparison counts; inf if no frame with the due load has come yet."""
        contest = self.running
        if contest is None:
            return 0.0 if self._load.is_seen else math.inf
        return 0.0 if contest.duel is None else now_s - contest.duel.last_s

    def load_seen(self, event: ev.FrameAnswered | ev.FrameAlone, now_s: float) -> Objective | None:
        """Count an answer; return a due objective once its load has come. `missed` tells if the load stays away."""
        due, live = self._findings.due, self._serving.live
        if not due or self.running is not None:
            return None
        self._load.count(event, 0 if live is None else _most_teams(live[1]), now_s)
        flows = self._load.flows_s(now_s) >= _FLOWS_FIRST_S
        able = (objective for objective in due if flows or self._findings.reason(objective) is None)
        seen = next((objective for objective in able if self._load.has_come(objective)), None)
        if seen is not None:
            self._load.restart()
        return seen

    def missed(self, now_s: float) -> bool:
        """Whether frames have come for long without any due objective's load building up."""
        missed = self._load.is_missed(now_s)
        if missed:
            self._load.restart()
        return missed

    def forget(self) -> None:
        """Drop comparisons whose load went away, as the machine has changed."""
        self._unfinished.clear()

    # --- trying -----------------------------------------------------------------------------------------------

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to try in the comparison that runs: `end` is to be called."""
        return self.running is not None and self.running.challenger is None

    def begin(self, objective: Objective) -> None:
        """Compare all candidates with the live plan, or resume a comparison whose load went away."""
        live, over, choice = self._serving.live, self._serving.available, self._choice
        assert live is not None
        contenders = [
            candidate
            for candidate in candidates(choice, over, objective)
            if candidate.plan == live[1] or choice.fits(candidate.plan, over)
        ]
        unfinished = self._unfinished.pop((objective, over), None)
        if unfinished is not None and live[1] in unfinished.value:
            self._resume(unfinished, contenders)
            return
        contest = self._new(
            objective, next((contender.name for contender in contenders if contender.plan == live[1]), _SERVED)
        )
        contest.is_whole = True
        self._start(contest, contenders)

    def begin_batches(self, due: Sequence[Candidate]) -> None:
        self.begin_with("throughput", due)
        self.of_batches = True

    def begin_with(self, objective: Objective, others: Sequence[Candidate], name: str = _SERVED) -> None:
        """Compare only `others` with the live plan, which is called `name`."""
        self._start(self._new(objective, name), others)

    def _new(self, objective: Objective, name: str) -> Contest:
        live = self._serving.live
        assert live is not None
        plan = live[1]
        return Contest(objective, self._serving.available, plan, name, value={plan: 1.0}, known={plan})

    def _resume(self, contest: Contest, contenders: Sequence[Candidate]) -> None:
        """Resume a comparison whose load went away, from whichever of its judged plans is live now. `contenders`: all
        candidates of today, some of which may not have been known before.
        """
        live = self._serving.live
        assert live is not None
        contest.tried_before = contest.tried
        if contest.challenger is not None:
            contest.left.appendleft(contest.challenger)
        if live[1] != contest.serving:
            contest.left.appendleft(Candidate(contest.serving, contest.name))
            contest.serving, contest.name = live[1], _SERVED
        self._start(contest, contenders)

    def _start(self, contest: Contest, contenders: Sequence[Candidate]) -> None:
        """Begin, or go on, with those of `contenders` that the comparison has not known before, and those left."""
        live = self._serving.live
        assert live is not None
        self._load.restart()
        self.running, self.of_batches = contest, False
        new = [candidate for candidate in contenders if candidate.plan not in contest.known]
        contest.left += new
        contest.known |= {candidate.plan for candidate in new}
        self._outbox.write(
            event_log.ComparisonBegan(
                objective=contest.objective,
                plan=str(live[1]),
                candidates=tuple(other.name for other in contest.left),
                reason=self._findings.reason(contest.objective),
            )
        )
        self._next(live[0])

    def settled(self, end: Settled, attempts: int) -> None:
        """A proposal has ended: the challenger is live, is tried again, or cannot run. `attempts`: left, with this."""
        contest, live, beside = self.running, self._serving.live, self._serving.beside
        if contest is None or contest.challenger is None or end.plan != contest.challenger.plan:
            if end.ending is Ending.LIVE and live is not None and live[0] == end.epoch and beside is not None:
                self._lead(beside[0])  # its comparison is over
                self._outbox.decide(LetGo())
        elif end.ending is not Ending.LIVE and live is not None and live[1] != contest.serving:
            self.abort()
        elif end.transient and attempts > 1 and live is not None:
            self._challenge(contest.challenger, live[0], attempts - 1)
        elif end.ending is not Ending.LIVE:
            contest.filled.add(end.plan)
            cannot_run = DuelResult(Verdict.NOT_BETTER, (math.nan, math.nan), math.nan, 0)
            self._write(contest, "cannot_run", cannot_run, end.reason)
            self._next(None if live is None else live[0])
        elif live is not None and beside is not None:
            teams = max(_most_teams(contest.serving), _most_teams(end.plan))
            contest.epochs = beside[0], live[0]
            self._findings.others.restart()
            contest.duel = Duel(contest.objective, teams, self._warm_up, self._outbox.now_s)
        else:  # something else has been asked for meanwhile
            self.abort()

    def answered(self, event: ev.FrameAnswered | ev.FrameAlone) -> None:
        """A frame of a duel."""
        contest, now_s = self.running, self._outbox.now_s
        if contest is None or contest.duel is None or self._is_over(contest):
            return
        duel, live = contest.duel, self._serving.live
        if live is None or event.epoch != live[0] or event.epoch != contest.epochs[duel.turn] or self._serving.changing:
            return
        if not self._serving.is_whole:
            duel.interrupt(now_s)
        elif isinstance(event, ev.FrameAlone):
            self._go_on(contest, duel.alone(event.latency_s, now_s))
        else:
            contest.in_flight = max(contest.in_flight, event.in_flight)
            self._go_on(contest, duel.answered(event, now_s))

    def look(self) -> None:
        """Called periodically, to end windows without load."""
        contest = self.running
        if contest is not None and contest.duel is not None and not self._is_over(contest):
            self._go_on(contest, contest.duel.look(self._outbox.now_s))

    def _is_over(self, contest: Contest) -> bool:
        """Whether the comparison was cut short, by a lost place or another proposal; if so, abort it."""
        live, beside = self._serving.live, self._serving.beside
        over = live is None or beside is None or {live[0], beside[0]} != set(contest.epochs)
        if over:
            self.abort()
        return over

    def _go_on(self, contest: Contest, outcome: DuelResult | None) -> None:
        live, duel, challenger = self._serving.live, contest.duel, contest.challenger
        assert live is not None and duel is not None and challenger is not None  # noqa: PT018 (one duel is on)
        if outcome is None:
            self._lead(contest.epochs[duel.turn])
            return
        self._write(contest, outcome.verdict.value, outcome)
        if outcome.verdict is not Verdict.NO_LOAD:
            contest.others_ratio = max(contest.others_ratio, self._findings.others.mean)
        if outcome.ratio and not math.isnan(outcome.ratio):
            contest.value[challenger.plan] = contest.value[contest.serving] * outcome.ratio
        enough = self.of_batches or contest.in_flight >= frames_to_fill(challenger.plan) - 1
        if enough and outcome.verdict is not Verdict.NO_LOAD:
            contest.filled.add(challenger.plan)
        better = outcome.verdict is Verdict.BETTER
        if better:
            contest.serving, contest.name = challenger.plan, challenger.name
        stays = contest.epochs[better]
        self._lead(stays)
        self._outbox.decide(LetGo())
        if outcome.verdict is not Verdict.NO_LOAD:
            self._next(stays)
        elif self._can_go_on(contest, challenger, duel):
            _pass_over(contest, frames_to_fill(challenger.plan))
            self._next(stays)
        else:
            self._break_off(contest)

    def _can_go_on(self, contest: Contest, challenger: Candidate, duel: Duel) -> bool:
        """Whether frames do come, only too few to fill batches: plans without batches can still be compared."""
        needs_many = has_batches(contest.serving) or has_batches(challenger.plan)
        return not self.of_batches and needs_many and self._outbox.now_s - duel.last_s < _FLOWS_S

    def _break_off(self, contest: Contest) -> None:
        """The load has gone away: the comparison is resumed after a pause, unless the best plan is known anyway."""
        self.running = None
        key = contest.objective, contest.over
        if not self.of_batches and not self._findings.is_known(*key):
            self._unfinished[key] = contest
        if contest.tried > contest.tried_before:
            self._findings.pauses.shorten(contest.objective)
        self._findings.pauses.begin(contest.objective, self._outbox.now_s)

    def give_way(self) -> None:
        """Break the comparison off, as frames come in a way that asks for another objective."""
        contest = self.running
        self.abort()
        if contest is not None:
            self._break_off(contest)

    def _lead(self, epoch: int) -> None:
        live = self._serving.live
        if live is None or live[0] != epoch:
            self._outbox.decide(Lead(epoch))

    def _next(self, under: int | None) -> None:
        """Propose the next challenger to the plan of this epoch; if there is none, the comparison is decided."""
        contest = self.running
        assert contest is not None
        contest.duel, contest.challenger, contest.in_flight = None, None, 0
        if contest.left and under is not None:
            contest.challenger = contest.left.popleft()
            self._challenge(contest.challenger, under, ATTEMPTS)

    def _challenge(self, challenger: Candidate, under: int, attempts: int) -> None:
        intent = Intent(Purpose.COMPARE, run=0, attempts=attempts)
        self._outbox.propose(Owner.TUNER, challenger.plan, under, intent, Superseded.COMPARED)

    def end(self) -> Contest | None:
        """End the comparison, as nothing is left to try, and return it; the plan that won is live."""
        contest, self.running = self.running, None
        if contest is not None:
            self._outbox.write(
                event_log.ComparisonEnded(
                    objective=contest.objective,
                    plan=str(contest.serving),
                    name=contest.name,
                    candidates=len(contest.known),
                )
            )
        return contest

    def abort(self) -> None:
        """Drop the comparison; the best plan so far keeps serving, if it still can."""
        contest, self.running = self.running, None
        if contest is None or contest.duel is None:
            return
        beside = self._serving.beside
        if beside is not None and beside[0] == contest.epochs[0]:
            self._lead(contest.epochs[0])
        self._outbox.decide(LetGo())

    def _write(self, contest: Contest, verdict: str, outcome: DuelResult, reason: str = "") -> None:
        assert contest.challenger is not None
        self._outbox.write(
            event_log.PlansCompared(
                objective=contest.objective,
                plan=str(contest.challenger.plan),
                stages=tuple(written(contest.challenger.plan)),
                name=contest.challenger.name,
                against=contest.name,
                verdict=verdict,
                ratio=event_log.if_finite(outcome.ratio),
                seconds=event_log.if_finite(outcome.seconds[1]),
                against_seconds=event_log.if_finite(outcome.seconds[0]),
                pairs=outcome.pairs,
                reason=reason or None,
            )
        )


def _pass_over(contest: Contest, frames: int) -> None:
    """Leave out plans whose batches take so many frames to fill, or more, as these do not come."""
    over = {each.plan for each in contest.left if has_batches(each.plan) and frames_to_fill(each.plan) >= frames}
    contest.left = deque(each for each in contest.left if each.plan not in over)
    contest.known -= over


def _most_teams(plan: Plan) -> int:
    return max(len(stage.teams) for stage in plan.stages)
