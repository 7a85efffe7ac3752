"""Invariants of planning between any two events (rules R2, R4 and R5), independent of the code that maintains them.

`check_cores` changes nothing. Invariants of the lifecycle alone are checked by the lifecycle's own.
"""

from __future__ import annotations

from shisha_rt.core.lifecycle.events import Owner
from shisha_rt.core.lifecycle.lifecycle import Lifecycle
from shisha_rt.core.tuning.cores import Cores
from shisha_rt.core.tuning.placing import Placing
from shisha_rt.core.tuning.state import Profiles, State
from shisha_rt.core.tuning.telling import description
from shisha_rt.core.tuning.tuning import Tuning

_MEASURES = frozenset({State.TUNING, State.WATCHING, State.COMPARING})


def check_cores(cores: Cores) -> None:
    """Raise AssertionError, with an explanation, if an invariant of planning is broken."""
    lifecycle, tuning = cores.lifecycle, cores.tuning
    _check_turns(lifecycle)
    _check_state(lifecycle, tuning)
    if tuning.state is State.TUNING:
        _check_trial(lifecycle, tuning)
    _check_what_stays(lifecycle, tuning)
    if cores.placing is not None:
        _check_placing(lifecycle, cores.placing)


def _check_turns(lifecycle: Lifecycle) -> None:
    """A plan whose operators are placed does not wait for one whose operators are not."""
    epochs = lifecycle.epochs
    waiting = [proposal.proposed for proposal in epochs.proposals if proposal.placed]
    assert not waiting or epochs.preparing is not None or lifecycle.changing, f"{waiting} wait for nothing"


def _check_state(lifecycle: Lifecycle, tuning: Tuning) -> None:
    state, live = tuning.state, lifecycle.live
    assert state is State.OFF or tuning.options is not None, f"it is {state.value} without a tuner"
    assert state is State.OFF or live is not None, f"it is {state.value} with no plan live"
    course = tuning.course
    left = course.rival or course.then
    assert left is None or state is State.COMPARING, f"it is {state.value}, and still compares: {left}"
    coming = tuning.choice.profiles is Profiles.COMING
    assert state is not State.PROFILING or coming, f"it waits for costs that are {tuning.choice.profiles.value}"
    epoch = tuning.measuring.epoch
    assert epoch is None or state in _MEASURES, f"it is {state.value}, and measures epoch {epoch}"
    assert epoch is None or (live is not None and epoch == live[0]), f"it measures epoch {epoch}, live is {live}"
    assert state is not State.WATCHING or epoch is not None, "it watches, and looks at nothing"


def _check_trial(lifecycle: Lifecycle, tuning: Tuning) -> None:
    """A plan that is tried is either a pending proposal, or live and measured; without one it is the tuner's turn."""
    search, live = tuning.search, lifecycle.live
    assert live is not None
    if search.trying is None:
        assert tuning.measuring.epoch is None, f"nothing is tried, and epoch {tuning.measuring.epoch} is measured"
        return
    awaited = (Owner.TUNER, search.proposal) in {(proposed.owner, proposed.number) for proposed in lifecycle.proposals}
    assert awaited != (tuning.measuring.epoch is not None), (
        f"the trial {search.trying} is awaited: {awaited}, or measured"
    )
    if tuning.measuring.epoch is not None:
        tried = search.trying.plan
        assert tried == live[1], f"{tried} is tried, and {live[1]} is measured"


def _check_what_stays(lifecycle: Lifecycle, tuning: Tuning) -> None:
    """R5: after a search one plan is live, kept, reported and watched: the best that the search has measured."""
    watched, live = tuning.watched, lifecycle.live
    if watched is None:
        return
    assert live is not None
    assert live[1] == watched, f"{watched} is watched, {live[1]} is live"
    kept, best = tuning.choice.best(tuning.search.over), tuning.search.best
    assert kept is not None, f"{watched} is watched, and nothing is kept"
    assert (kept.plan, kept.measurement) == best, f"{kept} is kept, best is {best}"
    best_described = description(tuning, 0.0)["best_plan"]
    assert best_described == str(watched), f"{watched} is watched, {best_described} is reported"


def _check_placing(lifecycle: Lifecycle, placing: Placing) -> None:
    known, live = placing.known, lifecycle.live
    assert known is None or (live is not None and known[0] == live[0]), f"known is {known}, live is {live}"
    requests = {
        number: request.proposed for number, request in placing._requests.items() if placing._is_wanted(request)
    }
    asked = [proposed for proposed in requests.values() if proposed is not None]
    with_placer = sorted((proposed.owner, proposed.number) for proposed in asked)
    unplaced = sorted((o.proposed.owner, o.proposed.number) for o in lifecycle.epochs.proposals if not o.placed)
    assert with_placer == unplaced, f"the placer has {with_placer}, {unplaced} wait for their devices"
    anew = [request for request, proposed in requests.items() if proposed is None]
    anew += [proposed.number for proposed in lifecycle.proposals if proposed.owner is Owner.PLACER]
    expected = [] if placing._replacing is None else [placing._replacing]
    assert anew == expected, f"the live plan is placed anew as {anew}, should be {expected}"
