"""The few plans that predicted costs never rule out: the whole network on each engine, as copies and as teams.

They are ordered by the measured time of the whole network on their engines, the most promising first; an engine that is
far slower is left out. Which candidate is best is decided by live windows (`contest`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.core.tuning.choice import Choice
from shisha_rt.costs.engine_trials import EngineTrial, far_slower, usable
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.machine.machine import Place
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine, is_openvino, without_spin
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.plan.rate import Objective

_MANY_PLACES: Final = 8
"""With at least so many alike places, half-size teams and fewer copies are candidates, too."""
MOST_MEASURED_BATCH: Final = 8
"""Larger batches are tried only if a user asks for them."""
_BATCHES: Final = (4, MOST_MEASURED_BATCH)
_SHORT_S: Final = 0.5e-3
"""If a network takes a core less than this for a frame, what the daemon and its clients do for the frame is of the same
order: copies on all cores but one may be faster, as that work then has a core to itself, and engines keep their caches.
"""
FILLS: Final = 2
"""Full batches in flight for each team, from which on their gain can be measured: one being computed, one waiting."""
_SPINNING: Final[StageEngine] = "onnxruntime-spin"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan to be tried live. `predicted_s`: for a frame, by its engine's trial on the network; inf: not known."""

    plan: Plan
    name: str
    predicted_s: float = math.inf


def candidates(choice: Choice, available: Collection[str], objective: Objective) -> list[Candidate]:
    """Candidates over `available` places, the most promising first. The best plan by costs of layers, if known, is the
    last one.

    For throughput, copies with batches are included if a trial took less time for each frame in a batch, and if a
    batch is not too long for the target; and copies that leave a core free, on the most promising engine alone, if
    frames are short.
    """
    places = [place for place in choice.machine.places if place.name in available]  # with spare places that are up
    alike = max(choice.machine.alike(places), key=len, default=[])
    shapes, usual = list(_shapes(places, alike)), _engines(choice)
    whole = [each for teams in shapes for engine in usual for each in _on_engine(choice, objective, engine, teams)]
    whole.sort(key=lambda candidate: candidate.predicted_s)
    if whole and len(alike) > 1 and objective == "throughput":
        engine, left = whole[0].plan.stages[0].engine, tuple((p.name,) for p in places if p.name != alike[-1])
        if _takes_s(choice, engine, left[0]) < _SHORT_S:
            whole += _on_engine(choice, objective, engine, left)
    further = choice.by_costs.get(objective)
    if further is not None and all(candidate.plan != further for candidate in whole):
        whole.append(Candidate(further, "the best by costs of layers"))
    return whole


def _engines(choice: Choice) -> list[StageEngine]:
    known = (DEFAULT_ENGINE,) if choice.tried is None else usable(choice.tried)
    return [engine for engine in choice.engines if without_spin(engine) in known]


def _on_engine(
    choice: Choice, objective: Objective, engine: StageEngine, teams: tuple[Team, ...]
) -> Iterator[Candidate]:
    """Yield the whole network on these teams, and as copies with batches; nothing if the engine is not worth a try."""
    threads = choice.machine.together(teams[0]).threads
    if engine == _SPINNING and (objective != "latency" or len(teams) > 1 or len(teams[0]) == 1):
        return
    if _is_far_slower(choice, engine, threads):
        return
    plan = Plan((Stage(((0, choice.rules.layer_count - 1),), teams, engine=engine),))
    trial = None if choice.tried is None else choice.tried.of(without_spin(engine))
    if trial is None:
        yield Candidate(plan, _name(engine, teams))
        return
    spare_bytes = choice.spare_bytes if is_openvino(engine) else math.inf  # OpenVINO has its own form of the weights
    if trial.private_bytes * len(teams) > spare_bytes:
        return
    frame_s = trial.time_s(threads)
    predicted_s = math.inf if frame_s is None else frame_s / (len(teams) if objective == "throughput" else 1)
    candidate = Candidate(plan, _name(engine, teams), predicted_s)
    yield candidate
    if objective != "throughput" or len(teams[0]) > 1 or trial.batched_s == math.inf:
        return
    for batch in _BATCHES:
        is_short = batch <= choice.most_batch and batch * trial.batched_s <= choice.most_run_s
        if is_short and trial.private_bytes_of(batch) * len(teams) <= spare_bytes:
            yield _in_batches(candidate, batch, trial)


def _is_far_slower(choice: Choice, engine: StageEngine, threads: int) -> bool:
    """Whether trials that no other process disturbed say that another engine is far faster on so many threads."""
    tried = choice.tried
    if tried is None or tried.others_ratio > DISTURBED:
        return False
    return without_spin(engine) in far_slower(tried, [without_spin(other) for other in choice.engines], threads)


def _takes_s(choice: Choice, engine: StageEngine, team: Team) -> float:
    """What the whole network takes on an engine and a team, by a trial; inf without one."""
    trial = None if choice.tried is None else choice.tried.of(without_spin(engine))
    frame_s = None if trial is None else trial.time_s(choice.machine.together(team).threads)
    return math.inf if frame_s is None else frame_s


def _shapes(places: Sequence[Place], alike: Sequence[str]) -> Iterator[tuple[Team, ...]]:
    """Yield the teams to try: a copy on each place; all `alike` places as one team; with many, also halves of them."""
    if not places:
        return
    yield tuple((place.name,) for place in places)
    if len(alike) < 2:
        return
    yield (tuple(alike),)
    if len(alike) >= _MANY_PLACES:
        half = len(alike) // 2
        yield tuple(alike[:half]), tuple(alike[half : 2 * half])
        yield (tuple(alike[:half]),)
        yield tuple((name,) for name in alike[:half])


def _in_batches(candidate: Candidate, batch: int, trial: EngineTrial) -> Candidate:
    plan = Plan((replace(candidate.plan.stages[0], batch=batch),))
    return Candidate(plan, f"{candidate.name}, batches of {batch}", candidate.predicted_s / trial.gain_of_batches)


def _name(engine: StageEngine, teams: Sequence[Team]) -> str:
    size = len(teams[0])
    of_team = "" if size == 1 else f"a team of {size}" if len(teams) == 1 else f"{len(teams)} teams of {size}"
    copies = "" if size > 1 else "1 place" if len(teams) == 1 else f"{len(teams)} copies"
    return f"{engine}, {of_team or copies}"


def frames_to_fill(plan: Plan) -> int:
    """Frames in flight from which on the gain of the plan's batches can be judged."""
    return max(FILLS * stage.batch * len(stage.teams) for stage in plan.stages)


def has_batches(plan: Plan) -> bool:
    return any(stage.batch > 1 for stage in plan.stages)
