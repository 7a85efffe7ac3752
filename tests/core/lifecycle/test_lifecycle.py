"""The lifecycle by example: one rule each, in a clock of our own. The random tests mix them all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.tables import FRAME, FramePhase, PlacePhase, Transition, Transitions, UnknownTransition
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules
from tests.core.lifecycle.driven_lifecycle import ON_B, ONE_STAGE, TWO_STAGES, Daemon, live
from tests.core.lifecycle.invariants import check
from tests.wording import says

# --- frames -------------------------------------------------------------------------------------------------------


def test_a_frame_passes_every_stage_and_is_collected_before_its_slot_is_filled_again() -> None:
    daemon = live(slots=1)
    first, second = daemon.send(), daemon.send()
    daemon.finish(first)
    kinds = [type(instruction) for instruction in daemon.made]
    assert kinds == [do.Fill, do.RunPart, do.RunPart, do.Collect, do.Deliver, do.Fill, do.RunPart]
    assert [run.descriptor.stage for run in daemon.all(do.RunPart)] == [0, 1, 0]
    daemon.finish(second)
    assert daemon.answers() == [(first, None), (second, None)]
    assert daemon.lifecycle.idle


def test_answers_keep_their_streams_order_and_unordered_ones_do_not_wait() -> None:
    daemon = live(ONE_STAGE, slots=4)
    first, second, free = daemon.send("s"), daemon.send("s"), daemon.send()
    daemon.finish(second)
    assert daemon.answers() == []
    daemon.finish(free)
    daemon.finish(first)
    assert [frame for frame, _ in daemon.answers()] == [free, first, second]


def test_a_deadline_while_running_answers_at_once_and_keeps_the_slot_until_the_part_is_back() -> None:
    daemon = live(slots=1)
    late, next_one = daemon.send(deadline_s=1.0), daemon.send()
    part = daemon.part(late)
    assert daemon.lifecycle.next_wake_s() == 1.0
    daemon.feed(ev.Tick(), after_s=1.0)
    assert daemon.answers() == [(late, Error.DEADLINE_PASSED)]
    assert [fill.frame for fill in daemon.all(do.Fill)] == [late]
    daemon.feed(ev.PartDone(part))
    assert [fill.frame for fill in daemon.all(do.Fill)] == [late, next_one]
    assert [run.descriptor.stage for run in daemon.all(do.RunPart)] == [0, 0], "no further stage of the late frame"


def test_a_cancelled_frame_that_waits_gives_its_bytes_and_its_turn_back() -> None:
    daemon = live(slots=1)
    daemon.send()
    waiting = daemon.send("s", size_bytes=7)
    daemon.feed(ev.FrameCancelled(waiting))
    daemon.feed(ev.FrameCancelled(waiting))
    assert daemon.answers() == [(waiting, Error.CANCELLED)]
    assert daemon.lifecycle.frames.streams.waiting_bytes == 0
    assert not daemon.lifecycle.frames.streams.turns.levels


def test_what_is_remembered_of_decided_frames_is_bounded() -> None:
    daemon = live(max_in_flight=4)
    for _ in range(100):
        daemon.feed(ev.FrameCancelled(daemon.send("s", deadline_s=1e9)))
        for worker in daemon.lifecycle.places.workers.values():
            for part in list(worker.out):
                daemon.feed(ev.PartDone(part))
    assert not daemon.lifecycle.frames.by_number
    assert len(daemon.lifecycle.frames.deadlines._heap) <= 2 * 8


def test_of_idle_streams_the_last_sequences_are_kept_and_the_longest_idle_is_forgotten_beyond_a_bound() -> None:
    daemon = live(ONE_STAGE, slots=4, sequences_kept=2)
    streams = daemon.lifecycle.frames.streams
    busy = daemon.send("busy", sequence=7)
    for number, name in enumerate(("first", "second", "third")):
        daemon.finish(daemon.send(name, sequence=number))
    daemon.finish(daemon.send("without"))
    assert {name: last for (_, name, _), last in streams.last_sequences.items()} == {"second": 1, "third": 2}
    assert [name for client in streams.clients.values() for _, name, _ in client.streams] == ["busy"]
    daemon.finish(busy)
    assert {name: last for (_, name, _), last in streams.last_sequences.items()} == {"third": 2, "busy": 7}
    assert not streams.clients


def test_an_engine_error_is_that_frames_answer() -> None:
    daemon = live()
    frame = daemon.send()
    daemon.feed(ev.PartFailed(daemon.part(frame), "bad shape"))
    assert daemon.all(do.Deliver) == [do.Deliver(frame, Error.TASK_FAILED, "bad shape")]
    assert len(daemon.lifecycle.frames.free_slots) == 2


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_sequence_is_the_previous_plus_one_and_a_refusal_uses_none_up() -> None:
    daemon = live(slots=4)
    daemon.send("s", sequence=7)
    refused = daemon.send("s", sequence=9)
    daemon.send("s", sequence=8)
    daemon.send("other", sequence=0)
    refusals = daemon.all(do.Refuse)
    assert [(refusal.frame, refusal.kind) for refusal in refusals] == [(refused, Error.OUT_OF_SEQUENCE)]
    assert refusals[0].message == "sequence is 9, expected 8 in this stream"


def test_nothing_is_expected_behind_the_last_sequence() -> None:
    daemon = live(slots=4)
    last = 2**63 - 1
    daemon.send("s", sequence=last)
    refused = daemon.send("s", sequence=last)
    daemon.send("s")
    (refusal,) = daemon.all(do.Refuse)
    assert (refusal.frame, refusal.kind) == (refused, Error.OUT_OF_SEQUENCE)
    assert refusal.message == says(f"sequence is {last}, expected none … {last}, …")


def test_frames_in_flight_and_waiting_bytes_are_bounded() -> None:
    daemon = Daemon(max_in_flight=3, waiting_bytes=10)
    daemon.send(size_bytes=50)  # larger than the budget, but alone
    refused = daemon.send(size_bytes=1)
    daemon.feed(ev.FrameCancelled(1))
    accepted = [daemon.send(size_bytes=5), daemon.send(size_bytes=5)]
    too_large = daemon.send(size_bytes=1)
    daemon.connect("a", "b")
    daemon.go_live(TWO_STAGES)
    assert daemon.lifecycle.frames.streams.waiting_bytes == 0, "bytes in a slot do not wait"
    accepted.append(daemon.send())
    too_many = daemon.send()
    assert [refusal.frame for refusal in daemon.all(do.Refuse)] == [refused, too_large, too_many]
    assert [refusal.kind for refusal in daemon.all(do.Refuse)] == [
        Error.TOO_MANY_BYTES,
        Error.TOO_MANY_BYTES,
        Error.TOO_MANY_FRAMES,
    ]


def test_a_batch_that_is_not_full_is_dealt_when_the_one_before_is_nearly_done() -> None:
    daemon = Daemon(("a",), slots=4, rules=PlanRules(4, ("a",), most_batch=4), batch=4)
    daemon.connect("a")
    daemon.propose(ONE_STAGE, ev.Owner.DAEMON)
    daemon.prepare("a")
    first = daemon.send()
    daemon.now += 0.01
    daemon.feed(ev.PartDone(daemon.part(first), 0.01))
    daemon.send()
    daemon.clear()
    daemon.send()
    daemon.send()
    assert not daemon.all(do.RunPart), "they wait for more"
    wake_s = daemon.lifecycle.next_wake_s()
    assert wake_s is not None
    daemon.feed(ev.Tick(), wake_s - daemon.now)
    (run,) = daemon.all(do.RunPart)
    assert len(run.descriptor.frames) == 2


def test_a_batch_of_a_superseded_plan_is_dealt_before_full_ones_of_the_newest() -> None:
    """Frames of the older plan waited until their deadline, as frames of the newer one filled every batch."""
    daemon = Daemon(("a",), slots=4, rules=PlanRules(4, ("a",), most_batch=2), max_in_flight=99)
    daemon.connect("a")
    daemon.go_live(Plan((Stage(((0, 3),), (("a",),), batch=2),)))
    for _ in range(6):
        daemon.send()
        daemon.now += 1.0
        daemon.feed(ev.PartDone(daemon.part(daemon.frame_count), 1.0))
    older = [daemon.send() for _ in range(4)]  # one alone, two in a batch, one that waits for more
    daemon.go_live(Plan((Stage(((0, 3),), (("a",),), batch=2),)))
    for _ in range(8):
        daemon.send()
    for _ in range(3):
        daemon.feed(ev.PartDone(next(iter(daemon.lifecycle.places.serving["a"].out)), 1.0))
        daemon.send()
        daemon.send()
    assert {frame for frame, _ in daemon.answers()}.issuperset(older)


def test_a_slower_team_has_no_more_frames_than_it_computes_while_faster_ones_do_all_others() -> None:
    """A team of a hundredth of another's speed was dealt full batches, whose frames waited 20 times as long."""
    plan = Plan((Stage(((0, 3),), (("a",), ("b",)), batch=4),))
    daemon = Daemon(slots=8, rules=PlanRules(4, ("a", "b"), most_batch=4), max_in_flight=99)
    daemon.connect("a", "b")
    daemon.go_live(plan)
    takes_s = {daemon.incarnation("a"): 1.0, daemon.incarnation("b"): 10.0}
    for part in [daemon.part(daemon.send()) for _ in takes_s]:
        daemon.feed(ev.PartDone(part, takes_s[part.incarnation]))
    daemon.clear()
    for _ in range(20):
        daemon.send()

    def held(place: str) -> list[int]:
        out = daemon.lifecycle.places.serving[place].out
        return [len(part.frames) for part in out]

    assert (held("a"), held("b")) == ([1, 4], [1])
    daemon.feed(ev.PartDone(next(iter(daemon.lifecycle.places.serving["a"].out)), 1.0))
    assert (held("a"), held("b")) == ([4, 4], [1])


def test_frames_of_one_request_are_admitted_together_or_not_at_all() -> None:
    daemon = live(slots=2, max_in_flight=4)
    daemon.send("s", sequence=0)
    refused = daemon.send("s", sequence=1, frames=4)
    assert [(refusal.frame, refusal.kind) for refusal in daemon.all(do.Refuse)] == [(refused, Error.TOO_MANY_FRAMES)]
    daemon.send("s", sequence=1, frames=3)
    for _ in range(2):
        daemon.send("s", frames=0)
    daemon.send("s", sequence=2)
    assert [refusal.frame for refusal in daemon.all(do.Refuse)] == [refused, daemon.frame_count]


def test_admission_goes_round_the_clients_and_round_the_streams_of_each() -> None:
    daemon = Daemon(slots=8)
    greedy = [daemon.send(f"greedy {number % 3}") for number in range(6)]
    modest = [daemon.send("modest", client="d"), daemon.send("modest", client="d"), daemon.send(client="d")]
    daemon.connect("a", "b")
    daemon.go_live(TWO_STAGES)
    in_turn = [greedy[0], modest[0], greedy[1], modest[2], greedy[2], modest[1], greedy[3], greedy[4]]
    assert [fill.frame for fill in daemon.all(do.Fill)] == in_turn


def test_greedy_clients_leave_room_for_the_next_one_that_comes() -> None:
    """193 of 333 frames of a client that sends one at a time were refused beside one that sends all it can."""
    daemon = live(slots=2, max_in_flight=8, waiting_bytes=40)
    for _ in range(40):
        daemon.send("greedy", size_bytes=4)
    alone = daemon.lifecycle.frames.streams.clients["c"].undelivered
    assert alone == 8, "one client alone has what server_metadata promises"
    for number in range(6):
        polite = daemon.send(client=f"polite {number}", size_bytes=4)
        assert polite not in [refusal.frame for refusal in daemon.all(do.Refuse)]
    assert daemon.lifecycle.frames.streams.undelivered <= 16
    daemon.clear()
    for frame in 3 * list(daemon.lifecycle.frames.by_number):  # those that wait behind others come later
        daemon.finish(frame)
    assert not daemon.lifecycle.frames.streams.clients
    assert daemon.lifecycle.frames.streams.waiting_bytes == 0


# --- deaths -------------------------------------------------------------------------------------------------------


def test_a_replay_starts_at_the_stages_input_under_the_same_epoch() -> None:
    daemon = live()
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    before = daemon.part(frame)
    daemon.kill("b", running=frame)
    daemon.restart("b")
    after = daemon.part(frame)
    assert (after.stage, after.epoch, after.slot) == (1, before.epoch, before.slot)
    assert (after.attempt, after.incarnation) == (before.attempt, daemon.incarnation("b"))
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]
    assert daemon.lifecycle.frames.replayed == 1


def test_the_second_death_is_the_error_of_the_running_frame_only() -> None:
    daemon = live(ONE_STAGE)
    guilty, beside = daemon.send(), daemon.send()
    for _ in range(2):
        daemon.kill("a", running=guilty)
        daemon.restart("a")
    assert daemon.answers() == [(guilty, Error.WORKER_DIED)]
    daemon.finish(beside)
    assert daemon.answers()[1:] == [(beside, None)]


def test_a_late_or_repeated_reply_is_counted_and_dropped() -> None:
    daemon = live()
    frame = daemon.send()
    old = daemon.part(frame)
    daemon.kill("a", running=frame)
    daemon.restart("a")
    again = daemon.part(frame)
    daemon.clear()
    assert daemon.feed(ev.PartDone(old)) == []
    assert daemon.part(frame) == again
    daemon.feed(ev.PartDone(again))
    daemon.feed(ev.PartFailed(again, "repeated"))
    assert daemon.lifecycle.frames.stale_replies == 2
    assert daemon.part(frame).stage == 1


def test_a_decided_frames_slot_is_free_when_its_worker_is_dead_and_not_before() -> None:
    daemon = live(slots=1)
    frame = daemon.send()
    daemon.feed(ev.FrameCancelled(frame))
    assert daemon.lifecycle.frames.free_slots == []
    assert daemon.lifecycle.frames.by_number[frame].phase is FramePhase.LEAVING
    daemon.kill("a", running=frame)
    assert daemon.lifecycle.frames.free_slots == [0]


def test_frames_of_a_lost_place_start_over_from_their_own_input_under_the_newest_epoch() -> None:
    daemon = live()
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    daemon.feed(ev.PlaceDown("b"), after_s=1.0)
    assert daemon.all(do.Replan) == [do.Replan("place b is down")]
    daemon.kill("b", running=frame)
    assert daemon.lifecycle.frames.by_number[frame].phase is FramePhase.STRANDED
    daemon.go_live(ONE_STAGE)
    part = daemon.part(frame)
    assert (part.stage, part.epoch) == (0, 2)
    assert [ended.epoch for ended in daemon.all(do.EpochEnded)] == [1]
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


def test_a_worker_whose_place_was_taken_down_is_dismissed_and_one_that_hangs_is_not() -> None:
    daemon = live()
    daemon.feed(ev.PlaceDown("b"))
    daemon.go_live(ONE_STAGE)
    daemon.feed(ev.WorkerHung(daemon.incarnation("a"), "silent"))
    assert [kill.dismissed for kill in daemon.all(do.Kill)] == [True, False]


# --- plans --------------------------------------------------------------------------------------------------------


def test_a_new_plan_takes_new_frames_while_the_old_one_finishes_its_own() -> None:
    daemon = live(slots=4)
    old = daemon.send()
    daemon.go_live(ON_B)
    new = daemon.send()
    assert (daemon.part(old).epoch, daemon.part(new).epoch) == (1, 2)
    assert daemon.all(do.RetireEpoch) == []
    daemon.finish(old)
    assert {(retirement.incarnation, retirement.epoch) for retirement in daemon.all(do.RetireEpoch)} == {
        (daemon.incarnation("a"), 1),
        (daemon.incarnation("b"), 1),
    }
    assert [collect.epoch for collect in daemon.all(do.Collect)] == [1]


def test_two_epochs_live_at_most_and_a_third_waits_for_the_oldest() -> None:
    daemon = live(slots=4)
    old = daemon.send()
    daemon.go_live(ONE_STAGE)
    daemon.propose(ON_B)
    assert [start.epoch for start in daemon.all(do.EpochStarted)] == [2]
    daemon.finish(old)
    assert [start.epoch for start in daemon.all(do.EpochStarted)] == [2, 3]


def compared(slots: int = 4) -> Daemon:
    """Epoch 2 has gone live beside epoch 1."""
    daemon = live(slots=slots)
    daemon.go_live(ONE_STAGE, ev.Superseded.COMPARED)
    assert (daemon.lifecycle.live, daemon.lifecycle.beside) == ((2, ONE_STAGE), (1, TWO_STAGES))
    return daemon


def test_two_plans_are_compared_by_leading_frames_to_the_one_or_the_other() -> None:
    daemon = compared()
    for lead in (2, 1, 2, 1):
        daemon.feed(ev.Lead(lead))
        daemon.finish(daemon.send())
    assert [collect.epoch for collect in daemon.all(do.Collect)] == [2, 1, 2, 1]
    assert not daemon.all(do.EpochEnded), "both stay loaded"
    daemon.feed(ev.LetGo())
    assert [ended.epoch for ended in daemon.all(do.EpochEnded)] == [2]
    assert daemon.lifecycle.live is not None
    assert (daemon.lifecycle.live[0], daemon.lifecycle.beside) == (1, None)


def test_who_is_led_away_from_goes_on_with_its_frames() -> None:
    daemon = compared()
    under_way = daemon.send()
    daemon.feed(ev.Lead(1))
    assert daemon.lifecycle.changing
    daemon.feed(ev.LetGo())
    assert not daemon.all(do.EpochEnded)
    daemon.finish(under_way)
    assert [collect.epoch for collect in daemon.all(do.Collect)] == [2]
    assert [ended.epoch for ended in daemon.all(do.EpochEnded)] == [2]


def test_a_comparison_makes_way_for_whatever_else_is_proposed() -> None:
    daemon = compared()
    daemon.feed(ev.Lead(1))
    daemon.propose(ON_B)
    assert daemon.lifecycle.beside is None
    assert [ended.epoch for ended in daemon.all(do.EpochEnded)] == [2]
    assert [started.epoch for started in daemon.all(do.EpochStarted)] == [2, 3]


def test_a_comparison_ends_with_a_place_and_the_plan_that_can_run_goes_on() -> None:
    daemon = live(slots=4)  # over a and b
    daemon.go_live(ON_B, ev.Superseded.COMPARED)
    daemon.feed(ev.Lead(1))
    daemon.feed(ev.PlaceDown("a"))
    assert daemon.lifecycle.live is not None
    assert (daemon.lifecycle.live[0], daemon.lifecycle.beside) == (2, None)
    daemon.finish(daemon.send())
    assert [collect.epoch for collect in daemon.all(do.Collect)] == [2]


def kept() -> Daemon:
    """Epoch 2 has gone live, and epoch 1 is to serve again later."""
    daemon = live(slots=4)
    daemon.go_live(ONE_STAGE, ev.Superseded.KEPT)
    return daemon


def test_a_kept_plan_serves_again_at_once_and_costs_nothing_meanwhile() -> None:
    daemon = kept()
    assert daemon.lifecycle.calm
    daemon.finish(daemon.send())
    assert daemon.lifecycle.calm
    daemon.feed(ev.Lead(1))
    daemon.finish(daemon.send())
    assert [collect.epoch for collect in daemon.all(do.Collect)] == [2, 1]
    assert not daemon.all(do.EpochEnded)


@pytest.mark.parametrize("led", [1, 2])
def test_what_serves_beside_a_kept_plan_stays_when_another_is_proposed(led: int) -> None:
    daemon = kept()
    daemon.feed(ev.Lead(led))
    daemon.propose(ON_B)
    assert daemon.lifecycle.live is not None
    assert (daemon.lifecycle.live[0], daemon.lifecycle.beside) == (led, None)
    assert [ended.epoch for ended in daemon.all(do.EpochEnded)] == [3 - led]


def test_a_worker_that_comes_up_loads_what_serves_before_a_kept_plan() -> None:
    daemon = kept()
    daemon.clear()
    daemon.kill("a")
    daemon.feed(ev.Tick())
    daemon.connect("a")
    assert [asked.epoch for asked in daemon.all(do.PrepareStage)] == [2, 1]


def test_a_kept_plan_that_cannot_be_loaded_again_is_let_go() -> None:
    daemon = kept()
    daemon.kill("a")
    daemon.feed(ev.Tick())
    daemon.connect("a")
    daemon.feed(ev.StageFailed(1, 0, daemon.incarnation("a"), "out of memory"))
    assert (daemon.lifecycle.beside, daemon.all(do.Kill)) == (None, [])


def test_a_plan_to_be_compared_is_dropped_at_once_if_another_is_proposed() -> None:
    daemon = live()
    daemon.propose(ONE_STAGE, superseded=ev.Superseded.COMPARED)
    daemon.propose(ON_B)
    assert [started.epoch for started in daemon.all(do.EpochStarted)] == [2, 3]
    assert daemon.all(do.Settled)[-1].ending is do.Ending.DROPPED


def dies(daemon: Daemon) -> None:
    daemon.kill("a")


def fails(daemon: Daemon) -> None:
    daemon.feed(ev.StageFailed(2, 1, daemon.incarnation("a"), "out of memory"))


def takes_too_long(daemon: Daemon) -> None:
    daemon.feed(ev.Tick(), after_s=120.0)


def goes_down(daemon: Daemon) -> None:
    daemon.feed(ev.PlaceDown("a"))


@pytest.mark.parametrize("mishap", [dies, fails, takes_too_long, goes_down])
def test_a_mishap_in_preparation_drops_the_new_epoch_everywhere(mishap: Callable[[Daemon], None]) -> None:
    daemon = live()
    proposal = daemon.propose(Plan.of([(0, 0, "b"), (1, 3, "a")]))
    daemon.prepare("b")
    mishap(daemon)
    settled = daemon.all(do.Settled)
    assert [(end.proposed.number, end.epoch, end.ending) for end in settled] == [(proposal, 2, "dropped")]
    assert (daemon.incarnation("b"), 2) in {
        (retirement.incarnation, retirement.epoch) for retirement in daemon.all(do.RetireEpoch)
    }
    assert [end.epoch for end in daemon.all(do.EpochEnded)] == [2]
    daemon.propose(ON_B)
    assert [start.epoch for start in daemon.all(do.EpochStarted)] == [2, 3], "the number is not used again"


def test_an_answer_to_a_dropped_preparation_is_ignored() -> None:
    daemon = live()
    daemon.propose(ONE_STAGE)
    daemon.feed(ev.Tick(), after_s=120.0)
    assert daemon.feed(ev.StagePrepared(2, 0, daemon.incarnation("a"))) == []


def test_a_preparation_waits_for_a_place_that_is_being_restarted() -> None:
    daemon = live()
    daemon.kill("a")
    daemon.propose(TWO_STAGES)
    daemon.prepare("b")
    daemon.restart("a")
    assert [end.ending for end in daemon.all(do.Settled)] == ["live"]
    worker = daemon.lifecycle.places.workers[daemon.incarnation("a")]
    assert worker.loaded == {(2, 0)}, "epoch 1 had no frames and is retired"


def test_a_restarted_worker_loads_the_live_epochs_only() -> None:
    daemon = live(slots=4)
    daemon.send()
    daemon.go_live(ONE_STAGE)
    daemon.clear()
    daemon.kill("a")
    daemon.feed(ev.Tick())
    daemon.connect("a")
    assert [(preparation.epoch, preparation.stage) for preparation in daemon.all(do.PrepareStage)] == [(1, 0), (2, 0)]
    assert daemon.all(do.RunPart) == [], "nothing runs before it is loaded"


def test_a_worker_that_cannot_load_a_live_plan_is_killed() -> None:
    daemon = live()
    daemon.kill("a")
    daemon.feed(ev.Tick())
    daemon.connect("a")
    daemon.feed(ev.StageFailed(1, 0, daemon.incarnation("a"), "out of memory"))
    assert [kill.incarnation for kill in daemon.all(do.Kill)] == [daemon.incarnation("a")]


def test_plans_are_refused_when_too_many_wait_or_a_place_is_down() -> None:
    daemon = live(waiting_plans=1)
    daemon.feed(ev.PlaceDown("b"))
    down = daemon.propose(ON_B)
    daemon.propose(ONE_STAGE)
    daemon.propose(ONE_STAGE)
    one_too_many = daemon.propose(ONE_STAGE)
    refused = [(end.proposed.number, end.epoch, end.reason) for end in daemon.all(do.Settled)]
    assert refused == [(down, None, "place b is down"), (one_too_many, None, "1 plans wait already")]


def test_a_plan_is_asked_for_until_there_is_one_but_not_all_the_time() -> None:
    daemon = Daemon()
    assert len(daemon.all(do.Replan)) == 1
    daemon.connect("a", "b")
    assert len(daemon.all(do.Replan)) == 1
    assert daemon.lifecycle.next_wake_s() == 0.5
    daemon.feed(ev.Tick(), after_s=0.5)
    assert len(daemon.all(do.Replan)) == 2


# --- places -------------------------------------------------------------------------------------------------------


def test_more_than_five_deaths_in_thirty_seconds_take_a_place_out() -> None:
    daemon = live()
    for _ in range(5):
        daemon.kill("a", after_s=5.0)
        daemon.restart("a")
    assert daemon.all(do.GivenUp) == []
    daemon.kill("a", after_s=5.0)
    assert [given_up.place for given_up in daemon.all(do.GivenUp)] == ["a"]
    place = daemon.lifecycle.places.by_name["a"]
    assert (place.available, place.phase) == (False, PlacePhase.OUT)
    daemon.feed(ev.PlaceUp("a"))
    daemon.restart("a")
    assert list(daemon.lifecycle.places.available) == ["a", "b"]


def test_what_people_are_told_of_a_place() -> None:
    daemon = live()
    standings = [daemon.lifecycle.places.standing("a")]

    def tell() -> None:
        standings.append(daemon.lifecycle.places.standing("a"))

    daemon.kill("a", crashed=True)
    tell()
    daemon.feed(ev.Tick())
    tell()
    daemon.feed(ev.Tick(), after_s=daemon.lifecycle.policy.away_s)
    tell()
    daemon.connect("a")
    tell()
    daemon.feed(ev.PlaceDown("a"))
    tell()
    daemon.feed(ev.PlaceUp("a"))
    while "a" in daemon.lifecycle.available:
        daemon.restart("a")
        daemon.kill("a", crashed=True)
    tell()
    daemon.feed(ev.PlaceDown("a"))  # what somebody has said is no fault of the place any more
    tell()
    assert standings == ["up", "restarting", "starting", "away", "up", "down", "given_up", "down"]


def test_deaths_far_apart_do_not_count_together() -> None:
    daemon = live()
    for _ in range(20):
        daemon.kill("a", after_s=6.1)
        daemon.restart("a")
    assert daemon.all(do.GivenUp) == []


def test_the_last_place_is_restarted_with_growing_delays_for_as_long_as_it_dies() -> None:
    daemon = live(ONE_STAGE, places=["a"])
    delays = []
    for _ in range(20):
        daemon.kill("a")
        start_s = daemon.lifecycle.places.by_name["a"].start_at_s
        delays.append(round(start_s - daemon.now, 3))
        daemon.now = start_s
        daemon.restart("a")
    assert delays == [0, 0, 0, 0, 0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, *[10] * 8]
    assert daemon.all(do.GivenUp) == []
    daemon.kill("a", after_s=31.0)
    assert daemon.lifecycle.places.by_name["a"].start_at_s == daemon.now, "a quiet while later all is forgotten"


def test_frames_do_not_wait_for_ever_for_workers_that_die() -> None:
    daemon = live(ONE_STAGE, places=["a"])
    running, waiting = daemon.send(), daemon.send(stream="s")
    for _ in range(3):
        daemon.kill("a", after_s=1.0)
        daemon.feed(ev.Tick())
    assert daemon.answers() == []
    assert daemon.lifecycle.next_wake_s() == daemon.now + daemon.lifecycle.policy.outage_s - 2.0
    daemon.feed(ev.Tick(), after_s=daemon.lifecycle.policy.outage_s - 2.0)
    assert daemon.answers() == [(running, Error.NO_WORKER), (waiting, Error.NO_WORKER)]
    daemon.send()
    (refuse,) = daemon.all(do.Refuse)
    assert refuse.kind is Error.NO_WORKER
    daemon.restart("a")
    daemon.clear()
    number = daemon.send()
    daemon.finish(number)
    assert daemon.answers() == [(number, None)]


def test_frames_wait_for_a_worker_that_takes_long() -> None:
    daemon = live(ONE_STAGE, places=["a"])
    daemon.send()
    for _ in range(2):
        daemon.kill("a")
        daemon.feed(ev.Tick(), after_s=100.0)
    assert daemon.answers() == []
    daemon.kill("a")
    assert [kind for _, kind in daemon.answers()] == [Error.NO_WORKER]


def test_the_last_place_is_not_taken_down() -> None:
    daemon = live(ONE_STAGE, places=["a"])
    daemon.feed(ev.PlaceDown("a"))
    assert daemon.lifecycle.places.available == ("a",)


def test_a_place_that_is_down_keeps_its_worker_while_a_live_plan_needs_it() -> None:
    daemon = live()
    worker = daemon.incarnation("b")
    frame = daemon.send()
    daemon.feed(ev.PlaceDown("b"))
    daemon.go_live(ONE_STAGE)
    assert daemon.all(do.Kill) == []
    daemon.finish(frame)
    assert [kill.incarnation for kill in daemon.all(do.Kill)] == [worker]
    assert daemon.all(do.PlaceReleased) == []
    daemon.kill("b")
    assert daemon.lifecycle.places.by_name["b"].phase is PlacePhase.OUT
    assert daemon.all(do.PlaceReleased) == [do.PlaceReleased("b")]


def test_a_worker_that_is_to_be_killed_is_asked_for_nothing() -> None:
    daemon = live(ONE_STAGE)
    worker = daemon.incarnation("b")
    daemon.feed(ev.PlaceDown("b"))
    assert [kill.incarnation for kill in daemon.all(do.Kill)] == [worker]
    daemon.feed(ev.PlaceUp("b"))
    daemon.propose(ON_B)
    assert daemon.all(do.PrepareStage) == []
    daemon.kill("b")
    daemon.restart("b")
    assert [end.ending for end in daemon.all(do.Settled)] == ["live"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_client_is_told_why_no_worker_starts_and_waits_no_longer(before: int) -> None:
    """It heard after two minutes that its plan was not prepared, and not why. `before`: starts that had failed."""
    daemon = Daemon(places=["a"])
    daemon.feed(ev.PlanProposed(ev.Owner.DAEMON, 1, ONE_STAGE, under=None))  # is prepared first
    for _ in range(before):
        daemon.kill("a", after_s=1.0)
        daemon.feed(ev.Tick(), after_s=10.0)
    daemon.propose(ONE_STAGE)
    for _ in range(2 - before):
        assert daemon.all(do.Settled) == []
        daemon.kill("a", after_s=1.0)
        daemon.feed(ev.Tick(), after_s=10.0)
    (end,) = daemon.all(do.Settled)
    assert end.proposed.owner is ev.Owner.CLIENT
    assert "killed" in end.reason
    daemon.connect("a")
    daemon.propose(ONE_STAGE)
    assert daemon.all(do.Settled) == [end], "it starts again"


def test_a_plan_that_is_prepared_waits_no_longer_either() -> None:
    daemon = Daemon(places=["a", "b"])
    daemon.propose(TWO_STAGES)
    daemon.connect("a")
    daemon.prepare("a")
    for _ in range(2):
        assert daemon.all(do.Settled) == []
        daemon.kill("b")
        daemon.feed(ev.Tick())
    (end,) = daemon.all(do.Settled)
    assert (end.ending, end.transient) == ("dropped", True)
    assert "killed" in end.reason


def test_a_worker_that_does_not_come_up_in_time_is_killed_once() -> None:
    daemon = Daemon(places=["a"])
    daemon.feed(ev.Tick(), after_s=daemon.lifecycle.policy.start_s)
    daemon.feed(ev.Tick(), after_s=1.0)
    assert [kill.incarnation for kill in daemon.all(do.Kill)] == [1]
    daemon.connect("a")
    assert daemon.lifecycle.places.by_name["a"].phase is PlacePhase.STARTING, "too late"


# --- the end ------------------------------------------------------------------------------------------------------


def test_very_many_workers_start_in_turns_and_the_first_plan_waits_for_all() -> None:
    """Each takes 40 s of the 60 that it has, and all of them ten times as long as a plan may take to be prepared."""
    names = [f"p{i}" for i in range(64)]
    daemon = Daemon(places=names, starts_at_once=4, start_s=60.0, prepare_s=120.0)
    daemon.propose(Plan.chain([(0, 3, [(name,) for name in names])]))
    begun = 0
    while begun < 64:
        starts = daemon.all(do.Start)[begun:]
        assert len(starts) == min(4, 64 - begun)
        begun += len(starts)
        assert all(daemon.lifecycle.next_wake_s() == daemon.now + 60.0 for _ in range(2))
        daemon.now += 40.0
        for start in starts:
            daemon.feed(ev.WorkerReady(start.incarnation))
            for preparation in [
                preparation
                for preparation in daemon.all(do.PrepareStage)
                if preparation.incarnation == start.incarnation
            ]:
                daemon.feed(ev.StagePrepared(preparation.epoch, preparation.stage, preparation.incarnation))
        daemon.feed(ev.Tick())
    assert daemon.all(do.Kill) == []
    assert daemon.lifecycle.live is not None
    daemon.kill("p7")
    daemon.feed(ev.Tick())
    assert daemon.all(do.Start)[64:] == [do.Start("p7", daemon.incarnation("p7"))]


def test_a_worker_that_never_comes_up_gives_its_turn_to_the_next() -> None:
    daemon = Daemon(places=["a", "b"], starts_at_once=1, start_s=60.0)
    assert [start.place for start in daemon.all(do.Start)] == ["a"]
    daemon.feed(ev.Tick(), after_s=60.0)
    assert [kill.incarnation for kill in daemon.all(do.Kill)] == [daemon.incarnation("a")]
    daemon.kill("a")
    daemon.feed(ev.Tick())
    assert [start.place for start in daemon.all(do.Start)] == ["a", "b"]
    daemon.connect("b")
    daemon.feed(ev.Tick())
    assert [start.place for start in daemon.all(do.Start)] == ["a", "b", "a"]


def test_draining_admits_nothing_and_answers_what_is_in_flight() -> None:
    daemon = live()
    frame = daemon.send()
    daemon.feed(ev.Drain())
    refused = daemon.send()
    assert [(refusal.frame, refusal.kind) for refusal in daemon.all(do.Refuse)] == [(refused, Error.DRAINING)]
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]
    assert daemon.lifecycle.idle


def test_stop_answers_everything_settles_every_plan_and_starts_no_process() -> None:
    daemon = live(slots=1)
    frames = [daemon.send("s"), daemon.send("s"), daemon.send()]
    proposals = [daemon.propose(ON_B), daemon.propose(ON_B)]
    daemon.feed(ev.Stop())
    assert daemon.answers() == [(frame, Error.STOPPED) for frame in frames]
    proposals.append(daemon.propose(ON_B))
    settled = daemon.all(do.Settled)
    assert [(end.proposed.number, end.ending) for end in settled] == [
        (proposals[0], "dropped"),
        (proposals[1], "dropped"),
        (proposals[2], "refused"),
    ]
    assert all(end.transient for end in settled[:2]), "no plan is at fault"
    daemon.clear()
    daemon.kill("a")
    daemon.feed(ev.PlaceUp("a"))
    daemon.feed(ev.Tick(), after_s=100.0)
    assert daemon.made == []
    assert daemon.lifecycle.next_wake_s() is None


# --- the tables ---------------------------------------------------------------------------------------------------


def test_an_unknown_transition_raises_with_its_own_story_and_changes_nothing() -> None:
    story: deque[Transition] = deque(("frame", number, "admit", FramePhase.ACTIVE) for number in (1, 12))
    with pytest.raises(UnknownTransition, match=r"frame 1: 'admit' is .* in ACTIVE") as caught:
        Transitions("frame", FRAME, story).step(1, SimpleNamespace(phase=FramePhase.ACTIVE), "admit")
    assert caught.value.story == (("frame", 1, "admit", FramePhase.ACTIVE),)
    assert len(story) == 2


def test_an_unknown_transition_leaves_the_lifecycle_as_it_was() -> None:
    daemon = live()
    frame = daemon.lifecycle.frames.by_number[daemon.send()]
    with pytest.raises(UnknownTransition):
        daemon.lifecycle.frames._step(frame.number, frame, "admit")
    assert frame.phase is FramePhase.ACTIVE
    check(daemon.lifecycle, [])


def test_a_place_that_cannot_be_started_waits_and_is_not_given_up() -> None:
    daemon = live()
    daemon.kill("a")
    daemon.feed(ev.Tick())
    waits_s = []
    for _ in range(12):
        daemon.feed(ev.WorkerGone(daemon.incarnation("a"), None, "no descriptors", started=False))
        waits_s.append(daemon.lifecycle.places.by_name["a"].start_at_s - daemon.now)
        daemon.feed(ev.Tick(), after_s=waits_s[-1])
    assert daemon.lifecycle.places.by_name["a"].available
    assert waits_s[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert max(waits_s) == pytest.approx(daemon.lifecycle.policy.restart_delay_max_s)
    assert daemon.lifecycle.places.by_name["a"].restarts == 1
    assert daemon.all(do.PlaceAway) == [do.PlaceAway("a")]
    daemon.connect("a")
    assert daemon.lifecycle.available == ("a", "b")
    daemon.prepare("a")
    number = daemon.send()
    daemon.finish(number)
    assert daemon.answers() == [(number, None)]


def test_a_place_that_is_down_at_first_gets_a_worker_when_it_comes_up() -> None:
    daemon = Daemon(places="abc", down="bc")
    assert [start.place for start in daemon.all(do.Start)] == ["a"]
    assert set(daemon.lifecycle.available) == {"a"}
    daemon.connect("a")
    daemon.feed(ev.PlaceUp("c"))
    daemon.feed(ev.Tick())
    assert [start.place for start in daemon.all(do.Start)] == ["a", "c"]
    assert set(daemon.lifecycle.available) == {"a", "c"}


def test_the_last_place_is_not_down_at_first() -> None:
    assert Daemon(down="ab").lifecycle.available == ("b",)
