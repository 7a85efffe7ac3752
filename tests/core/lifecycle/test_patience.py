"""What is waited for, and how long: places whose workers do not come back, epochs that do not end, plans that crash."""

from __future__ import annotations

from _collections_abc import dict_values

import pytest

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.records import PlaceState
from shisha_rt.core.lifecycle.tables import FramePhase
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan
from tests.core.lifecycle.driven_lifecycle import ON_B, ONE_STAGE, TWO_STAGES, Daemon, live
from tests.wording import says

COPIES = Plan.chain([(0, 3, [["a"], ["b"]])])


def reasons(daemon: Daemon) -> list[str]:
    return [end.reason for end in daemon.all(do.Settled)]


# --- places that are away -----------------------------------------------------------------------------------------


def test_frames_wait_for_a_place_no_longer_than_for_a_plan_without_it() -> None:
    """A worker that hung as it started held every frame for 60.4 s while two other places idled."""
    daemon = live()
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    daemon.kill("b", running=frame)
    daemon.feed(ev.Tick())  # its successor starts, and is not heard of
    assert not daemon.all(do.Replan)
    wake_s = daemon.lifecycle.next_wake_s()
    assert wake_s is not None
    daemon.feed(ev.Tick(), after_s=wake_s - daemon.now)
    assert daemon.now == pytest.approx(daemon.lifecycle.policy.away_s)
    assert daemon.all(do.PlaceAway) == [do.PlaceAway("b")]
    assert [replan.reason for replan in daemon.all(do.Replan)] == [says("place b is without a …")]
    assert daemon.lifecycle.available == ("a",)
    daemon.go_live(ONE_STAGE)
    assert daemon.part(frame).epoch == 2
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


class _Looked(dict[str, PlaceState]):
    """Counts how often all places are looked through."""

    times = 0

    def values(self) -> dict_values[str, PlaceState]:
        self.times += 1
        return super().values()


def test_places_that_never_came_up_are_looked_through_as_often_however_many_they_are() -> None:
    """Each was compared with all others: where 256 workers could not be started a tick took 13 ms."""
    times = []
    for count in (4, 40):
        daemon = Daemon(places=[f"p{number}" for number in range(count)], starts_at_once=count)
        for start in daemon.all(do.Start):
            daemon.feed(ev.WorkerGone(start.incarnation, None, "no process", started=False))
        places = daemon.lifecycle.places
        looked = places.by_name = _Looked(places.by_name)
        places._changed = True
        places.tick(daemon.now)
        times.append(looked.times)
    assert times[0] == times[1]


def test_a_place_is_taken_in_again_when_it_comes() -> None:
    daemon = live()
    daemon.kill("b")
    daemon.feed(ev.Tick())
    daemon.feed(ev.Tick(), after_s=2.0)
    refused = daemon.propose(ON_B)
    end = daemon.all(do.Settled)[-1]
    assert (end.proposed.number, end.ending) == (refused, do.Ending.REFUSED)
    assert daemon.all(do.Settled)[-1].transient
    daemon.clear()
    daemon.connect("b")
    assert daemon.all(do.PlaceBack) == [do.PlaceBack("b")]
    assert daemon.lifecycle.available == ("a", "b")
    daemon.go_live(ON_B)
    assert reasons(daemon) == [says("every worker concerned …")]


def test_what_its_last_start_took_three_times_over_is_no_long_absence() -> None:
    daemon = Daemon()
    daemon.now = 3.0  # both take that long to start
    daemon.connect("a", "b")
    daemon.go_live(TWO_STAGES)
    daemon.kill("b")
    daemon.feed(ev.Tick(), after_s=8.9)
    assert not daemon.all(do.PlaceAway)
    daemon.feed(ev.Tick(), after_s=0.2)
    assert daemon.all(do.PlaceAway) == [do.PlaceAway("b")]


def test_nobody_is_away_while_no_other_serves() -> None:
    daemon = live()
    daemon.kill("a")
    daemon.kill("b")
    daemon.feed(ev.Tick(), after_s=30.0)
    daemon.kill("a")
    daemon.feed(ev.Tick())
    assert not daemon.all(do.PlaceAway)
    daemon.connect("a")
    assert daemon.all(do.PlaceAway) == [do.PlaceAway("b")]


def test_a_preparation_does_not_wait_for_a_place_that_is_away() -> None:
    daemon = live(ONE_STAGE)
    daemon.kill("b")
    daemon.feed(ev.Tick())
    daemon.propose(ON_B)
    daemon.feed(ev.Tick(), after_s=2.0)
    end = daemon.all(do.Settled)[-1]
    assert (end.ending, end.transient) == (do.Ending.DROPPED, True)
    assert end.reason == says("place b is without a …")


def test_a_charged_frame_is_not_kept_for_a_place_that_is_away() -> None:
    daemon = live(COPIES)
    first = daemon.send()
    place = daemon.lifecycle.places.workers[daemon.part(first).incarnation].place
    daemon.kill(place, running=first)
    assert not daemon.parts(first), "it runs where it died, and nowhere else"
    daemon.feed(ev.Tick())
    daemon.feed(ev.Tick(), after_s=2.0)
    assert daemon.parts(first)
    daemon.finish(first)
    assert daemon.answers() == [(first, None)]


def test_frames_that_end_their_workers_run_again_one_at_a_time() -> None:
    """Four within two seconds held all others for 2.7 s: both places started anew at once, time and again."""
    daemon = live(COPIES, slots=6)
    poison = [daemon.send(), daemon.send()]
    for frame, place in zip(poison, ("a", "b"), strict=True):
        daemon.kill(place, running=frame)
    daemon.restart("a")
    assert not daemon.parts(poison[0]), "nobody else would be there"
    other = daemon.send()
    assert daemon.lifecycle.places.workers[daemon.part(other).incarnation].place == "a"
    daemon.finish(other)
    daemon.restart("b")
    assert [bool(daemon.parts(frame)) for frame in poison] == [True, False]
    daemon.kill("a", running=poison[0])
    assert daemon.answers()[-1] == (poison[0], Error.WORKER_DIED)
    daemon.finish(daemon.send())
    daemon.restart("a")
    assert daemon.parts(poison[1])


def test_no_frame_waits_behind_one_that_may_end_its_worker_while_another_serves() -> None:
    """It hung twice, and each time another frame waited behind it until that was noticed."""
    daemon = live(COPIES, slots=6)
    hanging = daemon.send()
    place = daemon.lifecycle.places.workers[daemon.part(hanging).incarnation].place
    daemon.kill(place, running=hanging)
    daemon.restart(place)
    assert daemon.parts(hanging)
    others = [daemon.send() for _ in range(3)]
    assert [len(daemon.parts(frame)) for frame in others] == [1, 1, 0]
    dealt = {daemon.lifecycle.places.workers[daemon.part(frame).incarnation].place for frame in others[:2]}
    assert place not in dealt
    daemon.finish(hanging)
    assert daemon.parts(others[2])


def test_a_slower_team_does_not_leave_frames_to_one_that_has_a_frame_that_may_end_it() -> None:
    """The slower team stayed idle, as the other was to be done sooner, until that one's hanging frame was noticed."""
    daemon = live(COPIES, slots=6)
    takes_s = {daemon.incarnation("a"): 1.0, daemon.incarnation("b"): 2.0}
    for part in [daemon.part(daemon.send()) for _ in takes_s]:
        daemon.feed(ev.PartDone(part, takes_s[part.incarnation]))
    hanging = daemon.send()
    daemon.kill("a", running=hanging)
    daemon.restart("a")
    other = daemon.send()
    assert daemon.part(hanging).incarnation == daemon.incarnation("a")
    assert daemon.part(other).incarnation == daemon.incarnation("b")


def test_a_charged_frame_runs_again_where_it_died_if_there_is_nobody_else() -> None:
    daemon = live(COPIES)
    frame = daemon.send()
    daemon.kill("a", running=frame)
    daemon.lose("b")
    daemon.restart("a")
    assert daemon.parts(frame)


@pytest.mark.parametrize("dies_first", [True, False], ids=["worker gone first", "up first"])
def test_a_place_that_is_put_down_and_up_time_and_again_is_started_later_each_time(dies_first: bool) -> None:
    """A worker was started and killed every 12 ms for as long as a client liked."""
    daemon = live(ONE_STAGE)
    pauses_s = []
    for _ in range(9):
        daemon.feed(ev.PlaceDown("b"))
        if not dies_first:
            daemon.feed(ev.PlaceUp("b"))
        daemon.kill("b")
        if dies_first:
            daemon.feed(ev.PlaceUp("b"))
        daemon.clear()
        begun_s = daemon.now
        daemon.feed(ev.PlaceUp("b"))  # to say so again changes nothing
        while not daemon.all(do.Start):
            wake_s = daemon.lifecycle.next_wake_s()
            daemon.feed(ev.Tick(), after_s=0.0 if wake_s is None else max(0.0, wake_s - daemon.now))
        pauses_s.append(daemon.now - begun_s)
        daemon.connect("b")
    assert pauses_s == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0])
    daemon.feed(ev.PlaceDown("b"), after_s=daemon.lifecycle.policy.death_window_s)
    daemon.kill("b")
    daemon.clear()
    daemon.feed(ev.PlaceUp("b"))
    daemon.feed(ev.Tick())
    assert daemon.all(do.Start)


# --- epochs that do not end ---------------------------------------------------------------------------------------


def test_frames_leave_a_superseded_epoch_in_which_nothing_is_done_any_more() -> None:
    """At a speed of 1e-7 the old epoch never ended, and no plan could be changed for good."""
    daemon = live(ONE_STAGE, retire_s=10.0)
    stuck = [daemon.send(), daemon.send()]
    daemon.go_live(ON_B)
    waiting = daemon.propose(TWO_STAGES)
    daemon.clear()
    assert daemon.lifecycle.next_wake_s() == daemon.now + 10.0
    daemon.feed(ev.Tick(), after_s=9.9)
    assert not daemon.all(do.Kill)
    daemon.feed(ev.Tick(), after_s=0.1)
    (kill,) = daemon.all(do.Kill)
    assert kill.reason == says("epoch 1 is superseded, … for 10 s")
    daemon.kill("a", running=stuck[0])
    assert [daemon.part(frame).epoch for frame in stuck] == [2, 2]
    assert daemon.lifecycle.frames.by_number[stuck[0]].deaths == 0, "it was not its fault"
    assert not daemon.lifecycle.places.by_name["a"].deaths_s, "nor its place's"
    daemon.restart("a")
    daemon.prepare("b")
    assert daemon.all(do.Settled)[-1].proposed.number == waiting
    for frame in stuck:
        daemon.finish(frame)
    assert daemon.answers() == [(frame, None) for frame in stuck]


def test_an_epoch_whose_parts_take_long_is_left_its_time() -> None:
    daemon = live(ONE_STAGE, retire_s=10.0)
    slow = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(slow), service_s=4.0))
    stuck = daemon.send()
    daemon.go_live(ON_B)
    daemon.feed(ev.Tick(), after_s=79.0)
    assert not daemon.all(do.Kill)
    daemon.feed(ev.Tick(), after_s=1.0)
    assert daemon.all(do.Kill)
    assert daemon.lifecycle.frames.by_number[stuck].phase is FramePhase.ACTIVE


def test_a_proposal_whose_turn_does_not_come_is_dropped() -> None:
    daemon = live(ONE_STAGE, prepare_s=50.0, retire_s=1e9)
    daemon.send()
    daemon.go_live(ON_B)
    daemon.clear()
    late = daemon.propose(TWO_STAGES)
    assert daemon.lifecycle.next_wake_s() == 50.0
    daemon.feed(ev.Tick(), after_s=50.0)
    (end,) = daemon.all(do.Settled)
    assert (end.proposed.number, end.ending, end.reason) == (late, do.Ending.DROPPED, says("… not come within 50 s"))


def test_a_plan_that_frames_wait_for_is_not_refused_as_clients_have_proposed_many() -> None:
    daemon = live(TWO_STAGES, waiting_plans=2)
    daemon.propose(ONE_STAGE)
    for _ in range(3):
        daemon.propose(ON_B)
    ended = daemon.all(do.Settled)
    assert [end.reason for end in ended] == ["2 plans wait already"]
    assert daemon.lifecycle.live is not None
    daemon.propose(ONE_STAGE, ev.Owner.DAEMON, daemon.lifecycle.live[0])
    assert daemon.all(do.Settled) == ended


def test_a_worker_that_does_not_end_building_a_stage_is_replaced_and_the_stage_is_tried_twice() -> None:
    """It kept each later plan waiting until that one's time was up, too."""
    daemon = live(ONE_STAGE, prepare_s=50.0)
    frame = daemon.send()
    for _ in range(2):
        daemon.propose(TWO_STAGES)
        daemon.prepare("a")
        daemon.feed(ev.Tick(), after_s=50.0)
        (kill,) = daemon.all(do.Kill)
        assert kill.incarnation == daemon.incarnation("b")
        daemon.kill("b")
        daemon.restart("b")
        daemon.clear()
    daemon.propose(TWO_STAGES)
    assert [end.ending for end in daemon.all(do.Settled)] == [do.Ending.REFUSED]
    daemon.go_live(ON_B)
    assert daemon.lifecycle.live == (4, ON_B)
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]
    assert daemon.lifecycle.available == ("a", "b")


def test_time_in_which_a_preparation_waits_for_workers_does_not_count_for_those_that_build() -> None:
    """A worker that still built was ended as if it had not loaded the live plan, and its frame was charged for that."""
    daemon = Daemon(prepare_s=50.0)
    daemon.connect("a")
    daemon.go_live(ONE_STAGE)
    frame = daemon.send()
    daemon.clear()
    daemon.propose(TWO_STAGES)
    daemon.feed(ev.Tick(), after_s=30.0)
    daemon.connect("b")
    assert daemon.lifecycle.next_wake_s() == 80.0
    daemon.feed(ev.Tick(), after_s=49.0)
    assert not daemon.all(do.Kill)
    daemon.feed(ev.Tick(), after_s=1.0)
    assert reasons(daemon) == [says("not prepared within 50 s")]
    assert {kill.incarnation for kill in daemon.all(do.Kill)} == {daemon.incarnation("a"), daemon.incarnation("b")}
    daemon.kill("a", running=frame)
    assert daemon.lifecycle.frames.by_number[frame].deaths == 0


# --- plans that crash ---------------------------------------------------------------------------------------------


def test_a_stage_that_ends_its_worker_is_tried_twice_and_not_laid_to_the_place() -> None:
    daemon = live(ONE_STAGE, deaths_in_window=1)
    for _ in range(2):
        daemon.propose(ON_B)
        daemon.kill("b", crashed=True)
        daemon.restart("b")
    daemon.propose(ON_B)
    assert [end.ending for end in daemon.all(do.Settled)] == [*[do.Ending.DROPPED] * 2, do.Ending.REFUSED]
    assert reasons(daemon)[-1] == says("stage 0 on b has ended … worker 2 times in its …")
    assert daemon.lifecycle.available == ("a", "b")
    daemon.go_live(TWO_STAGES)
    assert daemon.all(do.Settled)[-1].ending is do.Ending.LIVE, "other stages are no worse for it"


def test_of_several_stages_of_a_worker_the_first_one_not_prepared_is_what_it_crashed_over() -> None:
    daemon = live(TWO_STAGES)
    innocent = Plan.of([(0, 0, "a"), (1, 1, "b"), (2, 2, "a"), (3, 3, "b")])
    guilty = Plan.of([(0, 1, "b"), (2, 2, "a"), (3, 3, "b")])
    for _ in range(2):
        daemon.propose(guilty)
        daemon.kill("b", crashed=True)
        daemon.restart("b")
    daemon.go_live(innocent)
    daemon.go_live(guilty)
    assert [end.ending for end in daemon.all(do.Settled)][-2:] == [do.Ending.LIVE, do.Ending.REFUSED]


def test_a_stage_that_was_prepared_after_all_begins_anew() -> None:
    daemon = live(ONE_STAGE)
    for _ in range(2):
        daemon.propose(ON_B)
        daemon.kill("b", crashed=True)
        daemon.restart("b")
        daemon.go_live(ON_B)
        daemon.go_live(ONE_STAGE)
    assert [end.ending for end in daemon.all(do.Settled)][-1] is do.Ending.LIVE


def test_a_plan_of_the_daemons_own_that_crashes_costs_its_place_in_the_end() -> None:
    """There is no other to be had: refused for good, frames would wait for ever."""
    daemon = live(ONE_STAGE, deaths_in_window=2)
    for _ in range(3):
        daemon.propose(ON_B, ev.Owner.DAEMON, under=1)
        daemon.kill("b", crashed=True)
        daemon.feed(ev.Tick())
        if "b" in daemon.lifecycle.available:
            daemon.connect("b")
    assert [end.ending for end in daemon.all(do.Settled)] == [do.Ending.DROPPED] * 3
    assert [given_up.place for given_up in daemon.all(do.GivenUp)] == ["b"]


def test_a_worker_that_somebody_kills_says_nothing_of_a_stage() -> None:
    daemon = live(ONE_STAGE)
    for _ in range(3):
        daemon.propose(ON_B)
        daemon.kill("b")
        daemon.restart("b")
    daemon.go_live(ON_B)
    assert daemon.all(do.Settled)[-1].ending is do.Ending.LIVE


def test_a_worker_that_dies_with_a_frame_is_its_places_and_the_frames_matter() -> None:
    daemon = live(TWO_STAGES)
    frame = daemon.send()
    daemon.propose(ON_B)
    daemon.feed(ev.PartDone(daemon.part(frame)))
    daemon.kill("b", running=frame, crashed=True)
    assert len(daemon.lifecycle.places.by_name["b"].deaths_s) == 1
    assert daemon.lifecycle.frames.by_number[frame].deaths == 1


# --- what is ready ------------------------------------------------------------------------------------------------


def test_a_daemon_is_ready_when_every_stage_of_its_live_plan_can_run() -> None:
    daemon = Daemon()
    assert not daemon.lifecycle.can_run
    daemon.connect("a", "b")
    daemon.go_live(TWO_STAGES)
    assert daemon.lifecycle.can_run
    daemon.kill("b")
    assert not daemon.lifecycle.can_run
    daemon.feed(ev.Tick())
    daemon.connect("b")
    assert not daemon.lifecycle.can_run, "it has nothing loaded yet"
    daemon.prepare("b")
    assert daemon.lifecycle.can_run
    daemon.go_live(COPIES)
    daemon.kill("a")
    assert daemon.lifecycle.can_run, "its copy can"
