"""When a worker counts as hung, in a time that the test makes."""

from __future__ import annotations

from shisha_rt.daemon.fleet.watch import HangLimits, Watch
from shisha_rt.process.board import Sign

PATIENCE = HangLimits(silence_s=2.0, frame_s=5.0, expected_factor=20.0)
LOOK_S = 0.25


def _watch() -> Watch:
    """Of a worker that wants no core."""
    return Watch(PATIENCE, lambda: False)


def _looks(watch: Watch, signs: list[Sign], expected_s: float = 0.0, seen_s: float = LOOK_S) -> list[str | None]:
    return [watch.look(sign, round(i * seen_s * 1e9), seen_s, expected_s) for i, sign in enumerate(signs)]


def test_a_worker_that_signs_is_never_hung() -> None:
    assert not any(_looks(_watch(), [Sign(beat, None, 0) for beat in range(1000)]))


def test_silence_counts_from_the_last_sign_seen() -> None:
    reasons = _looks(_watch(), [Sign(7, None, 0)] * 10)
    assert reasons[:9] == [None] * 9
    assert reasons[9] is not None
    assert "of life for 2.2 s" in reasons[9]


def test_a_worker_that_gets_no_core_is_given_longer() -> None:
    watch, sign = Watch(PATIENCE, lambda: True), Sign(7, None, 0)
    reasons = [watch.look(sign, 0, LOOK_S, 0.0) for _ in range(100)]
    first = next(i for i, reason in enumerate(reasons) if reason is not None)
    assert first * LOOK_S == PATIENCE.starved_s + LOOK_S


def test_one_sign_of_life_starts_the_silence_anew() -> None:
    watch = _watch()
    assert not any(_looks(watch, [Sign(1, None, 0)] * 9))
    assert not any(_looks(watch, [Sign(2, None, 0)] * 9))


def test_a_daemon_that_was_late_blames_nobody() -> None:
    """However long it was away, one look counts for what its caller says was seen, no more."""
    watch = _watch()
    assert not any(_looks(watch, [Sign(1, None, 0), Sign(1, None, 0)], seen_s=0.5))


def test_a_frame_may_take_five_seconds_or_twenty_times_its_usual_time() -> None:
    def busy_looks(expected_s: float) -> int:
        signs = [Sign(beat, frame=3, started_ns=9) for beat in range(2000)]
        reasons = _looks(_watch(), signs, expected_s)
        return next(i for i, reason in enumerate(reasons) if reason is not None)

    assert busy_looks(expected_s=0.01) * LOOK_S == 5.25
    assert busy_looks(expected_s=1.0) * LOOK_S == 20.25


def test_another_frame_or_the_same_frame_again_starts_its_time_anew() -> None:
    watch = _watch()
    signs = [Sign(beat, frame=3, started_ns=9) for beat in range(15)]
    signs += [Sign(100 + beat, frame=3, started_ns=10) for beat in range(15)]
    signs += [Sign(200 + beat, frame=4, started_ns=11) for beat in range(15)]
    assert not any(_looks(watch, signs))


def test_an_emulated_place_may_wait_as_long_as_it_said_and_no_longer() -> None:
    until_s = 3600.0
    signs = [Sign(beat, frame=3, started_ns=9, paced_until_ns=round(until_s * 1e9)) for beat in range(20_000)]
    reasons = _looks(_watch(), signs)
    hung = next(i for i, reason in enumerate(reasons) if reason is not None)
    assert hung * LOOK_S == until_s + PATIENCE.frame_s


def test_what_it_took_before_it_waited_is_not_forgotten() -> None:
    computing = [Sign(beat, frame=3, started_ns=9) for beat in range(17)]
    waiting = [Sign(17 + beat, frame=3, started_ns=9, paced_until_ns=round(60e9)) for beat in range(300)]
    reasons = _looks(_watch(), computing + waiting)
    hung = next(i for i, reason in enumerate(reasons) if reason is not None)
    assert hung * LOOK_S == 60 + PATIENCE.frame_s - 16 * LOOK_S


def test_a_worker_that_has_parts_and_runs_none_has_lost_a_message() -> None:
    def idle_looks(signs: list[Sign], *, wants_core: bool = False) -> list[str | None]:
        watch = Watch(PATIENCE, lambda: wants_core)
        return [watch.look(sign, 0, LOOK_S, 0.0, parts=1) for sign in signs]

    lost = [Sign(beat, None, started_ns=9) for beat in range(60)]
    first = next(i for i, reason in enumerate(idle_looks(lost)) if reason is not None)
    assert first * LOOK_S == PATIENCE.idle_s + LOOK_S
    assert not any(idle_looks([Sign(beat, None, started_ns=beat) for beat in range(60)])), "it runs one after another"
    starved = next(i for i, reason in enumerate(idle_looks(lost, wants_core=True)) if reason is not None)
    assert starved * LOOK_S == PATIENCE.starved_s + LOOK_S
    watch = _watch()
    assert not any(watch.look(sign, 0, LOOK_S, 0.0) for sign in lost), "it has none"
