"""What trials of engines say: who may serve, who is ahead, and trials on several numbers of threads as one."""

from __future__ import annotations

from msgspec.structs import replace

from shisha_rt.costs.engine_trials import (
    FAR_SLOWER,
    MOST_UNLIKE,
    RUN_S,
    BatchTime,
    EnginesTried,
    EngineTime,
    EngineTrial,
    ahead,
    far_slower,
    further_apart,
    together,
    usable,
    why_not,
)
from shisha_rt.plan.engine import ENGINES

RIGHT = EngineTrial("onnxruntime", "1", runs=True)
OTHER = EngineTrial("openvino", "2", runs=True, difference=0.5, unlike=MOST_UNLIKE, over_rounding=1.0)


def tried(threads: int, *wall_s: float, others_ratio: float = 0.0, other: EngineTrial = OTHER) -> EnginesTried:
    times = [(EngineTime(threads, time_s, time_s * threads, runs=5),) for time_s in wall_s]
    trials = [replace(trial, times=time) for trial, time in zip((RIGHT, other), times, strict=True)]
    return EnginesTried(tuple(trials), others_ratio)


def test_an_engine_whose_answers_differ_may_not_serve() -> None:
    assert usable(EnginesTried((RIGHT, OTHER))) == ("onnxruntime", "openvino")
    for spoilt, reason in (
        (replace(OTHER, over_rounding=1.01), "differ"),
        (replace(OTHER, unlike=2 * MOST_UNLIKE), "0.20% of an output"),
        (replace(OTHER, runs=False, reason="it died"), "it died"),
        (replace(OTHER, runs=False), "does not run"),
    ):
        assert reason in why_not(spoilt)
        assert usable(EnginesTried((RIGHT, spoilt))) == ("onnxruntime",)


def test_who_is_ahead_and_who_is_far_slower() -> None:
    assert ahead(tried(1, 1.0, 0.5), 1) == "openvino"
    assert ahead(tried(1, 0.5, 1.0), 1) == "onnxruntime"
    assert ahead(tried(1, 1.0, 1.02), 1) is None  # they are level
    assert ahead(tried(1, 1.0, 0.5), 2) is None  # nobody knows
    assert ahead(tried(1, 1.0, 0.5, other=replace(OTHER, over_rounding=2.0)), 1) is None
    assert far_slower(tried(1, 1.0, 1.01 * FAR_SLOWER), ENGINES, 1) == {"openvino"}
    assert far_slower(tried(1, 1.0, 0.99 * FAR_SLOWER), ENGINES, 1) == frozenset()


def test_bfloat16_may_differ_by_more_than_rounding_and_is_never_ahead() -> None:
    """It is for those who permit other answers, so that it leads nothing that keeps them."""
    coarse = replace(OTHER, engine="openvino_bf16", difference=0.2, unlike=0.3, over_rounding=200.0)
    assert usable(EnginesTried((RIGHT, coarse))) == ("onnxruntime", "openvino_bf16")
    assert not why_not(replace(coarse, difference=0.99, unlike=0.99))
    assert "differ by 1 of" in why_not(replace(coarse, difference=1.0))
    assert why_not(replace(coarse, runs=False, reason="it died")) == "it died"
    three = EnginesTried((*tried(1, 1.0, 0.9).engines, replace(coarse, times=(EngineTime(1, 0.4, 0.4, runs=5),))))
    assert ahead(three, 1) == "openvino"
    assert far_slower(three, ENGINES, 1) == {"onnxruntime", "openvino"}
    assert far_slower(three, ["onnxruntime", "openvino"], 1) == frozenset()


def test_an_engine_that_is_far_slower_with_single_frames_alone_is_not_ruled_out() -> None:
    slower = tried(1, 1.0, 2.0).engines[1]
    in_runs = replace(slower, batch_times=(BatchTime(4, frame_s=1.4, single_s=2.0),))
    both = EnginesTried((tried(1, 1.0, 2.0).engines[0], in_runs))
    assert far_slower(both, ENGINES, 1) == frozenset()
    too_slow = replace(in_runs, batch_times=(BatchTime(4, frame_s=1.6, single_s=2.0),))
    assert far_slower(EnginesTried((both.engines[0], too_slow)), ENGINES, 1) == {"openvino"}


def test_what_batches_gain_counts_what_a_run_costs_besides() -> None:
    trial = replace(RIGHT, batch_times=(BatchTime(4, 1.0, 3.0), BatchTime(2, 1.0, 2.0)))
    assert trial.gain_of_batches == (3.0 + RUN_S) / (1.0 + RUN_S / 4)
    assert RIGHT.gain_of_batches == 1


def test_memory_for_runs_grows_with_their_frames() -> None:
    trial = replace(RIGHT, private_bytes=100, batch_times=(BatchTime(4, 1.0, 2.0, private_bytes=180),))
    assert [trial.private_bytes_of(frames) for frames in (1, 2, 4, 8)] == [100, 140, 180, 260]
    assert replace(trial, batch_times=()).private_bytes_of(8) == 100


def test_one_thread_is_told_by_its_cpu_time() -> None:
    time = EngineTime(1, wall_s=3.0, cpu_s=1.0, runs=5)
    trial = replace(RIGHT, times=(time, EngineTime(2, wall_s=0.6, cpu_s=1.1, runs=5)))
    assert (trial.time_s(1), trial.time_s(2), trial.time_s(4)) == (1.0, 0.6, None)


def test_trials_on_several_threads_are_one() -> None:
    worse = replace(OTHER, difference=0.75, unlike=None, over_rounding=1.5, build_s=9.0, private_bytes=9)
    both = together([tried(1, 1.0, 0.5, others_ratio=0.3), tried(2, 0.6, 0.4, others_ratio=0.1, other=worse)])
    assert both.others_ratio == 0.3
    right, other = both.engines
    assert [time.threads for time in other.times] == [1, 2]
    assert (other.difference, other.unlike, other.over_rounding) == (0.75, MOST_UNLIKE, 1.5)
    assert (other.build_s, other.private_bytes) == (OTHER.build_s, OTHER.private_bytes)  # of one thread
    assert (right.difference, right.runs) == (None, True)
    lost = together([tried(1, 1.0, 0.5), tried(2, 0.6, 0.4, other=replace(OTHER, runs=False, reason="it died"))])
    assert why_not(lost.engines[1]) == "it died"


def test_the_frame_that_is_furthest_apart_counts() -> None:
    trial = further_apart(further_apart(RIGHT, 0.1, None, 0.5), 0.05, 0.2, 0.9)
    assert (trial.difference, trial.unlike, trial.over_rounding) == (0.1, 0.2, 0.9)
    assert further_apart(RIGHT, None, None, None) == RIGHT
