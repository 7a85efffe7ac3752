"""What the lifecycle has promised of parts, kept by whoever watches from outside: from what it was told and what it
said alone.

- A part runs when all that it comes after is done in that attempt, on a team of its stage that has loaded it.
- Never is a part out twice, nor run again once it is done; only what a dead worker held runs again.
- What a client lends is read before any part is done, or out beside, and once no more; it is written by the last part.
- A frame begins anew only when none of its parts is out, and its slot is not filled before.
- No team gets a second part while one of its pool that can take it has none, nor any while it is down and another is
  not.
- A run has as many frames as its stage was prepared for at most, all of one shape, none charged or suspected.
- What ends a run of several frames makes suspects of them, and is charged to none: each runs again alone, where that
  was, until it has passed that stage, and a death meanwhile is the end of it.
- A death is charged once, to the frame that was computed, if that part was dealt after the last charge, and not if
  the worker was ended as it held up a superseded plan. That frame runs where it died and nowhere else, as long as the
  place has a worker or gets one soon, and only while another team of the pool serves, and has no such frame, if any
  other is to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.places import Places
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.plan.plan import Plan
from tests.core.lifecycle.simulated_workers import Workers, tasks

Key = tuple[int, int, int]


class PartBooks:
    """`out`: the parts that workers have, and when they were dealt. `deaths`: what frames are charged with."""

    def __init__(self, places: Places, workers: Workers, policy: Policy, plans: Mapping[int, Plan]) -> None:
        self.deaths: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        self._places = places
        self._workers = workers
        self._policy = policy
        self._plans = plans
        self._out: dict[ev.Descriptor, int] = {}
        self._done: set[Key] = set()
        self._begun: dict[tuple[int, int], int] = {}
        self._loaded: set[tuple[int, int, int]] = set()
        self._charged: dict[int, tuple[str, int]] = {}
        self._suspects: dict[int, Key] = {}
        self.shapes: dict[int, int] = {}
        self._shared: list[ev.Descriptor] = []
        self._gone: set[int] = set()
        self.blameless: set[int] = set()
        self._dealt = 0

    # --- what it is told --------------------------------------------------------------------------------------

    def hear(self, event: ev.Event) -> None:
        """An event is about to be handled."""
        match event:
            case ev.PartDone(descriptor=part) if part in self._out:
                del self._out[part]
                for task in tasks(part):
                    self._done.add(_key(task))
                    self._clear(task)
            case ev.PartFailed(descriptor=part) if part in self._out:
                del self._out[part]
                if part.beside:
                    self._suspect(part)
            case ev.StagePrepared() if event.incarnation not in self._gone:
                self._loaded.add((event.incarnation, event.epoch, event.stage))
                if event.alone:
                    self._workers.batches[event.epoch, event.stage] = 1
                    self.seen["kept alone"] += 1
            case ev.WorkerGone():
                self._worker_gone(event)

    def _suspect(self, run: ev.Descriptor) -> None:
        place = self._workers.processes[run.incarnation].place
        for task in tasks(run):
            self._suspects[task.frame] = _key(task)
            self._charged[task.frame] = place, self._dealt
        self.seen["suspected"] += 1

    def _clear(self, task: ev.Descriptor) -> None:
        if self._suspects.get(task.frame) == _key(task):
            del self._suspects[task.frame]
            self.seen["cleared"] += 1
            if not self.deaths[task.frame]:
                del self._charged[task.frame]

    def has(self, part: ev.Descriptor) -> bool:
        """Whether a worker has it."""
        return part in self._out

    def _worker_gone(self, gone: ev.WorkerGone) -> None:
        self._gone.add(gone.incarnation)
        lost = [part for part in self._out if part.incarnation == gone.incarnation]
        computed = next((part for part in lost if part.frame == gone.running), None)
        if computed is not None and gone.incarnation not in self.blameless:
            place = self._workers.processes[gone.incarnation].place
            for task in tasks(computed):
                _, charged_at = self._charged.get(task.frame, ("", 0))
                if self._out[computed] <= charged_at:
                    self.seen["excused"] += 1
                    continue
                self._charged[task.frame] = place, self._dealt
                if computed.beside:
                    self._suspects[task.frame] = _key(task)
                    self.seen["suspected"] += 1
                else:
                    of_suspect = task.frame in self._suspects
                    self.deaths[task.frame] += self._policy.deaths_per_frame if of_suspect else 1
                    self.seen["suspect charged" if of_suspect else "charged"] += 1
        for part in lost:
            del self._out[part]
        self._loaded = {key for key in self._loaded if key[0] != gone.incarnation}

    # --- what it has said -------------------------------------------------------------------------------------

    def kill(self, kill: do.Kill) -> None:
        if "is superseded" in kill.reason or "was not prepared" in kill.reason:
            self.blameless.add(kill.incarnation)
            self.seen["hurried"] += 1

    def note_place(self, said: do.PlaceAway | do.PlaceBack) -> None:
        self.seen[type(said).__name__] += 1

    def run(self, run: do.RunPart) -> None:
        part, plan = run.descriptor, self._plans[run.descriptor.epoch]
        of_run = tasks(part)
        most = self._workers.batches[part.epoch, part.stage]
        assert len(of_run) <= most, f"{run} has {len(of_run)} frames, of {most}"
        if len(of_run) > 1:
            blamed = [frame for frame in part.frames if frame in self._suspects or self.deaths[frame]]
            assert not blamed, f"{part}: {blamed} are to run alone"
            assert len({self.shapes[frame] for frame in part.frames}) == 1, f"{part} has frames of several shapes"
            assert len(set(part.frames)) == len(of_run), f"{part} has a frame twice"
            self.seen["shared"] += 1
            if not any(other.incarnation == part.incarnation for other in self._out):
                self._shared.append(part)
        place = self._workers.processes[part.incarnation].place
        of_each: tuple[do.RunPart | do.Shared, ...] = (run, *run.beside)
        for task, copies in zip(of_run, of_each, strict=True):
            self._check_task(task, plan, place)
            self._check_copying(copies, task, plan)
        if not self._stays_where_it_died(part, place, plan.stages[part.stage].leads):
            self._check_dealing(part, place, plan)
        self._dealt += 1
        self._out[part] = self._dealt

    @property
    def _tasks(self) -> list[ev.Descriptor]:
        return [task for run in self._out for task in tasks(run)]

    def _check_task(self, part: ev.Descriptor, plan: Plan, place: str) -> None:
        stage, key = plan.stages[part.stage], _key(part)
        twice = [task for task in self._tasks if _key(task) == key]
        assert not twice, f"{part} is given while {twice} is out"
        assert key not in self._done, f"{part} is given, and was done before"
        lacking = [before for before in stage.after if (part.frame, part.attempt, before) not in self._done]
        assert not lacking, f"{part} is given before stages {lacking} are done"
        others = [task for task in self._tasks if task.frame == part.frame]
        old = [other for other in others if (other.attempt, other.epoch) != (part.attempt, part.epoch)]
        assert not old, f"{part} begins its frame anew while {old} are out"
        epoch = self._begun.setdefault((part.frame, part.attempt), part.epoch)
        assert epoch == part.epoch, f"{part} is of an attempt in epoch {epoch}"
        assert place in stage.leads, f"{part} is given to {place}, its stage is on {stage.teams}"
        assert self.deaths[part.frame] < self._policy.deaths_per_frame, f"{part} is given after its frame's last death"
        self._check_risk(part, place, plan)
        self.seen["side by side"] += bool(others)
        self.seen["join"] += len(stage.after) > 1
        self.seen["copy"] += len(stage.teams) > 1
        self.seen["team"] += any(team[0] == place and len(team) > 1 for team in stage.teams)

    def _check_copying(self, run: do.RunPart | do.Shared, part: ev.Descriptor, plan: Plan) -> None:
        if run.reads:
            begun = [key for key in (*map(_key, self._tasks), *self._done) if key[0] == part.frame]
            assert not begun, f"{part} reads what is lent, {begun} are out or done"
            assert not plan.stages[part.stage].after, f"{part} reads what is lent, and does not begin its frame"
        if run.writes:
            behind = {before for stage in plan.stages for before in stage.after}
            others = set(range(len(plan.stages))) - behind - {part.stage}
            alone = part.stage not in behind and not others
            assert alone, f"{part} writes what is lent, and does not end its frame by itself"
        self.seen["reads"] += run.reads
        self.seen["writes"] += run.writes

    def _check_risk(self, part: ev.Descriptor, place: str, plan: Plan) -> None:
        """Of the teams of a pool one at a time has frames that may end it."""
        leads = next([team[0] for team in pool.teams] for pool in plan.pools if part.stage in pool.stages)
        others = [lead for lead in leads if lead not in {place, *self._places.lost, *self._places.down}]
        if part.frame not in self._charged or not others:
            return
        at_risk = {task.incarnation for task in self._tasks if task.frame in self._charged}
        able = [
            process
            for process in self._workers.processes.values()
            if process.place in others and (process.incarnation, part.epoch, part.stage) in self._loaded
        ]
        safe = [process for process in able if process.incarnation not in at_risk and not process.doomed]
        assert safe, f"{part} may end {place}, and nobody else is there for others: {others} at risk or not up"
        self.seen["at risk alone"] += 1

    def _stays_where_it_died(self, part: ev.Descriptor, place: str, leads: tuple[str, ...]) -> bool:
        """Whether it has to."""
        died_on = self._charged.get(part.frame, ("", 0))[0]
        if died_on not in leads or died_on in self._places.lost:
            return False
        assert place == died_on, f"{part} is given to {place}, its frame died on {died_on}"
        self.seen["stays where it died"] += len(leads) > 1
        return True

    def _check_dealing(self, part: ev.Descriptor, place: str, plan: Plan) -> None:
        """Breadth first, where teams are alike, and not to one that is down."""
        pool = next(pool for pool in plan.pools if part.stage in pool.stages)
        leads = [team[0] for team in pool.teams]
        down = self._places.down
        willing = [lead for lead in leads if lead not in down] or leads
        assert place in willing, f"{part} is given to {place}, which is down, {willing} are not"
        held = Counter(other.incarnation for other in self._out)
        unlike = len(pool.stages) == 1 and self._are_unlike(leads)
        at_risk = part.frame in self._charged  # one team at a time has such frames, whoever is idle
        if not held[part.incarnation] or unlike or at_risk:
            return
        for process in self._workers.processes.values():
            able = (process.incarnation, part.epoch, part.stage) in self._loaded and not process.doomed
            idle = able and process.place in willing and not held[process.incarnation]
            assert not idle, f"{part} is {place}'s second, while {process.place} has none"
        self.seen["second"] += 1

    def _are_unlike(self, leads: Collection[str]) -> bool:
        """Whether their runs have unlike times for a frame; also by their sizes, if a run has a cost of its own."""
        return len({self._workers.layer_s.get(lead) for lead in leads}) > 1 or self._workers.run_s > 0

    def check_shares(self) -> None:
        """Of what was dealt since the last time: no team has several frames of a stage while another of it has none.

        Unless that one may wait for more.
        """
        shared, self._shared = self._shared, []
        if self._policy.batch_delay_s or self._workers.run_s:
            return
        held = {other.incarnation for other in self._out}
        for part in shared:
            leads = set(self._plans[part.epoch].stages[part.stage].leads) - self._places.down
            unlike = self._are_unlike(leads)
            for process in self._workers.processes.values():
                able = (process.incarnation, part.epoch, part.stage) in self._loaded and not process.doomed
                idle = able and process.alive and process.place in leads and process.incarnation not in held
                assert unlike or not idle, f"{part} has several frames, and {process.place} has none"

    def fill(self, fill: do.Fill | do.ReadLent) -> None:
        inside = [part for part in self._out if fill.slot in part.slots]
        assert not inside, f"slot {fill.slot} is filled while {inside} are out"


def _key(part: ev.Descriptor) -> Key:
    return part.frame, part.attempt, part.stage
