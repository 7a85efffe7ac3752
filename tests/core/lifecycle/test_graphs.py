"""Plans that are more than a chain, by example: forks and joins, copies, teams, pools of several stages."""

from __future__ import annotations

from collections.abc import Iterable

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.tables import FramePhase, PlacePhase
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan, Stage
from tests.core.lifecycle.driven_lifecycle import Daemon, live

DIAMOND = (frozenset[int](), frozenset({0}), frozenset({0}), frozenset({1, 2}))
FORK = Plan(
    (
        Stage(((0, 0),), (("a",),)),
        Stage(((1, 1),), (("b",),), (0,)),
        Stage(((2, 2),), (("c",),), (0,)),
        Stage(((3, 3),), (("a",),), (1, 2)),
    )
)
COPIES = Plan.chain([(0, 3, (("a",), ("b",)))])
SHARED = Plan.chain([(0, 1, (("a",),)), (2, 3, (("a",),))])
TEAM = Plan.chain([(0, 3, (("a", "b"),))])


def fork(**setup: int) -> Daemon:
    return live(FORK, places="abc", needs=DIAMOND, **setup)


def dealt(made: Iterable[object], daemon: Daemon) -> list[tuple[int, int, str]]:
    """Frame, stage and place of each part that was dealt."""
    of = {incarnation: worker.place for incarnation, worker in daemon.lifecycle.places.workers.items()}
    parts = [instruction.descriptor for instruction in made if isinstance(instruction, do.RunPart)]
    return [(part.frame, part.stage, of[part.incarnation]) for part in parts]


# --- forks and joins ----------------------------------------------------------------------------------------------


def test_branches_run_side_by_side_and_the_join_waits_for_both() -> None:
    daemon = fork()
    frame = daemon.send()
    made = daemon.feed(ev.PartDone(daemon.part(frame)), after_s=1.0)
    assert dealt(made, daemon) == [(frame, 1, "b"), (frame, 2, "c")]
    assert [instruction.ready_s for instruction in made if isinstance(instruction, do.RunPart)] == [1.0, 1.0]
    assert daemon.lifecycle.frames.queued(1) == {1: 1, 2: 1}
    assert dealt(daemon.feed(ev.PartDone(daemon.parts(frame)[2])), daemon) == []
    made = daemon.feed(ev.PartDone(daemon.parts(frame)[1]), after_s=1.0)
    assert dealt(made, daemon) == [(frame, 3, "a")]
    assert [instruction.ready_s for instruction in made if isinstance(instruction, do.RunPart)] == [2.0]
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


def test_a_failed_branch_is_the_answer_and_the_slot_waits_for_the_other() -> None:
    daemon = fork(slots=1)
    frame, waiting = daemon.send(), daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    other = daemon.parts(frame)[2]
    daemon.feed(ev.PartFailed(daemon.parts(frame)[1], "bad shape"))
    assert daemon.answers() == [(frame, Error.TASK_FAILED)]
    assert daemon.lifecycle.frames.by_number[frame].phase is FramePhase.LEAVING
    assert [fill.frame for fill in daemon.all(do.Fill)] == [frame]
    daemon.feed(ev.PartDone(other))
    assert [fill.frame for fill in daemon.all(do.Fill)] == [frame, waiting]


def test_a_death_takes_back_what_that_worker_had_and_the_other_branch_goes_on() -> None:
    daemon = fork()
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    daemon.clear()
    daemon.kill("b")
    daemon.restart("b")
    assert dealt(daemon.made, daemon) == [(frame, 1, "b")]
    assert {part.attempt for part in daemon.parts(frame).values()} == {0}
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


def test_two_workers_that_one_frame_ends_are_one_death() -> None:
    daemon = fork()
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    daemon.kill("b", running=frame)
    daemon.kill("c", running=frame)
    assert daemon.answers() == []
    daemon.restart("c")
    daemon.kill("c", running=frame)
    assert daemon.answers() == [(frame, Error.WORKER_DIED)]


def test_a_death_is_charged_once_however_many_parts_the_worker_had() -> None:
    plan = Plan((*FORK.stages[:1], *(Stage(((layer, layer),), (("b",),), (0,)) for layer in (1, 2)), FORK.stages[3]))
    daemon = live(plan, needs=DIAMOND)
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    assert len(daemon.parts(frame)) == 2
    daemon.kill("b", running=frame)
    daemon.restart("b")
    assert len(daemon.parts(frame)) == 2
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


def test_a_frame_starts_anew_when_its_last_part_is_back_and_not_before() -> None:
    daemon = fork()
    frame = daemon.send()
    daemon.feed(ev.PartDone(daemon.part(frame)))
    other = daemon.parts(frame)[2]
    daemon.lose("b")
    assert daemon.lifecycle.places.by_name["b"].phase is PlacePhase.OUT
    daemon.clear()
    daemon.go_live(Plan.of([(0, 3, "a")]))
    assert dealt(daemon.made, daemon) == []
    assert dealt(daemon.feed(ev.PartDone(other)), daemon) == [(frame, 0, "a")]
    assert (daemon.part(frame).attempt, daemon.part(frame).epoch) == (1, 2)
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


# --- copies -------------------------------------------------------------------------------------------------------


def test_copies_are_dealt_one_part_each_before_any_gets_a_second() -> None:
    daemon = live(COPIES, slots=6)
    frames = [daemon.send("s") for _ in range(5)]
    assert [place for _, _, place in dealt(daemon.made, daemon)] == ["a", "b", "a", "b"]
    daemon.feed(ev.PartDone(daemon.part(frames[1])))
    assert daemon.answers() == [], "the one before it comes first"
    assert dealt(daemon.made, daemon)[4:] == [(frames[4], 0, "b")]
    for frame in frames:
        daemon.finish(frame)
    assert daemon.answers() == [(frame, None) for frame in frames]


def test_a_second_part_goes_to_the_copy_that_will_be_done_first() -> None:
    """It went to one that had just begun, if that was a little faster: with three frames in flight the other idled."""
    daemon = live(COPIES, slots=6)
    for _ in range(2):
        frames = [daemon.send(), daemon.send()]
        for frame in frames:
            daemon.feed(ev.PartDone(daemon.part(frame), 0.0100 if _place(daemon, frame) == "a" else 0.0099), 0.005)
    first, second = daemon.send(), daemon.send()
    assert (_place(daemon, first), _place(daemon, second)) == ("b", "a")
    daemon.feed(ev.PartDone(daemon.part(first), 0.0099), after_s=0.005)
    third, fourth = daemon.send(), daemon.send()
    assert (_place(daemon, third), _place(daemon, fourth)) == ("b", "a")


def _place(daemon: Daemon, frame: int) -> str:
    return daemon.lifecycle.places.workers[daemon.part(frame).incarnation].place


def test_a_lost_copy_leaves_the_other_serving_and_its_parts_run_there() -> None:
    daemon = live(COPIES)
    first, second = daemon.send(), daemon.send()
    daemon.clear()
    daemon.lose("a", after_s=1.0)
    assert dealt(daemon.made, daemon) == [(first, 0, "b")]
    assert daemon.lifecycle.epochs.runnable() is not None
    assert len(daemon.all(do.Replan)) == 1, "a plan without it, or with a copy elsewhere, may be better"
    for frame in (first, second):
        daemon.finish(frame)
    assert daemon.answers() == [(first, None), (second, None)]


def test_a_copy_that_is_down_gets_nothing_more_and_the_last_one_goes_on() -> None:
    daemon = live(COPIES, places="abc", slots=8)
    daemon.feed(ev.PlaceDown("a"))
    daemon.clear()
    frames = [daemon.send() for _ in range(3)]
    assert [place for _, _, place in dealt(daemon.made, daemon)] == ["b", "b"]
    daemon.feed(ev.PlaceDown("b"))
    assert {place for _, _, place in dealt(daemon.made, daemon)} == {"a", "b"}
    for frame in frames:
        daemon.finish(frame)
    assert len(daemon.answers()) == 3


def test_a_frame_that_ends_its_worker_does_not_end_the_copies() -> None:
    daemon = live(COPIES, slots=4)
    guilty = daemon.send()
    daemon.kill("a", running=guilty)
    assert daemon.parts(guilty) == {}, "it waits for the place where it died"
    other = daemon.send()
    daemon.finish(other)
    daemon.restart("a")
    daemon.kill("a", running=guilty)
    assert daemon.answers() == [(other, None), (guilty, Error.WORKER_DIED)]


def test_a_charged_frame_may_go_elsewhere_once_its_place_is_out() -> None:
    daemon = live(COPIES)
    frame = daemon.send()
    daemon.lose("a", running=frame)
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]


def test_a_slower_copy_takes_a_part_only_if_the_faster_one_would_be_busy_for_longer() -> None:
    daemon = live(COPIES, slots=12)
    for place, service_s in (("a", 0.01), ("b", 0.045)):
        daemon.feed(ev.PlaceDown("b" if place == "a" else "a"))
        daemon.feed(ev.PartDone(daemon.part(daemon.send()), service_s))
        daemon.feed(ev.PlaceUp("b" if place == "a" else "a"))
    daemon.clear()
    frames = [daemon.send() for _ in range(4)]
    assert [place for _, _, place in dealt(daemon.made, daemon)] == ["a", "a"], "four take 40 ms there"
    frames.append(daemon.send())
    assert dealt(daemon.made, daemon)[2:] == [(frames[2], 0, "b")], "five would take 50"
    for frame in frames:
        daemon.finish(frame)


# --- pools of several stages, teams -------------------------------------------------------------------------------


def test_a_pool_runs_the_oldest_frame_first_whatever_its_stage() -> None:
    daemon = live(SHARED, slots=4, descriptors_per_worker=1)
    first, second = daemon.send(), daemon.send()
    while daemon.parts(first) or daemon.parts(second):
        daemon.feed(ev.PartDone(next(iter((daemon.parts(first) or daemon.parts(second)).values()))))
    order = [(first, 0, "a"), (first, 1, "a"), (second, 0, "a"), (second, 1, "a")]
    assert dealt(daemon.made, daemon) == order


def test_a_worker_that_restarts_is_dealt_parts_of_a_stage_as_soon_as_that_is_loaded() -> None:
    daemon = live(SHARED)
    first, second = daemon.send(), daemon.send()
    daemon.feed(ev.PartDone(daemon.parts(first)[0]))
    daemon.kill("a")
    daemon.feed(ev.Tick())
    daemon.connect("a")
    assert [(preparation.stage, preparation.team) for preparation in daemon.all(do.PrepareStage)] == [
        (0, ("a",)),
        (1, ("a",)),
    ]
    daemon.clear()
    daemon.feed(ev.StagePrepared(1, 1, daemon.incarnation("a")))
    assert dealt(daemon.made, daemon) == [(first, 1, "a")]
    daemon.feed(ev.StagePrepared(1, 0, daemon.incarnation("a")))
    assert dealt(daemon.made, daemon) == [(first, 1, "a"), (second, 0, "a")]


def test_a_team_lives_with_its_leads_worker() -> None:
    daemon = Daemon(places="abc")
    daemon.connect(*"abc")
    daemon.propose(TEAM)
    assert [(preparation.incarnation, preparation.team) for preparation in daemon.all(do.PrepareStage)] == [
        (daemon.incarnation("a"), ("a", "b"))
    ]
    daemon.prepare("a")
    frame = daemon.send()
    daemon.clear()
    daemon.lose("b", after_s=1.0)
    assert [replan.reason for replan in daemon.all(do.Replan)] == ["place b is down"]
    assert daemon.lifecycle.epochs.runnable() is not None, "the team goes on until then"
    daemon.finish(frame)
    assert daemon.answers() == [(frame, None)]
    daemon.lose("a")
    assert daemon.lifecycle.epochs.runnable() is None


def test_frames_of_the_older_epoch_go_first() -> None:
    daemon = live(SHARED, slots=4, descriptors_per_worker=1)
    older = daemon.send()
    daemon.go_live(Plan.of([(0, 3, "a")]))
    daemon.send()
    daemon.feed(ev.PartDone(daemon.part(older)))
    assert daemon.part(older).stage == 1


# --- what slots need no room for ----------------------------------------------------------------------------------


def test_only_what_no_live_plan_passes_needs_no_room_any_more() -> None:
    daemon = live(FORK, places="abc", needs=DIAMOND)

    def passing(plan: Plan) -> set[str]:
        return {str(stage.last) for stage in plan.stages[:-1]}

    ended = Plan.of([(0, 0, "a"), (1, 1, "b"), (2, 3, "c")])
    assert daemon.lifecycle.epochs.passed_by_none_but(ended, passing) == set()
    daemon.go_live(Plan.of([(0, 0, "a"), (1, 3, "b")]))
    assert daemon.lifecycle.epochs.passed_by_none_but(ended, passing) == {"1"}
