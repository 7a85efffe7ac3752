"""`events`: every kind in words, and a real daemon's journal as lines and as JSON."""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import time
from typing import Any, Final, get_args

import pytest

from shisha_rt.cli.events import EventsOptions, events
from shisha_rt.core.event_log import AnyRecord, Record
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.show import event_words
from shisha_rt.show.event_words import in_words
from tests.cli.conftest import Run
from tests.cli.journal import MOVED, SEED, a_run, event, trial
from tests.serving.daemon_process import DaemonProcess
from tests.waiting import PATIENCE_S
from tests.wording import says

COPIES: Final = Plan((Stage(((0, 25),), (("core0",), ("core1",))), Stage(((26, 40),), (("core2", "core3"),))))


def test_a_run_in_words() -> None:
    walk = "layer 12 from stage 1 (slow0) to stage 0 (fast0)"
    assert [in_words(entry) for entry in a_run()] == [
        f"tuning began, run 2 (the speed of fast0 is 0.5 now): {SEED}",
        says(f"trial 0 of run 2: 200.0 frames/s ±1.2%, first (where … walk starts): {SEED}"),
        f"trial 1 of run 2: 250.0 frames/s ±1.2%, better ({walk}): {MOVED}",
        f"trial 2 of run 2: 251.0 frames/s ±1.2%, not better ({walk}): {MOVED}",
        says(f"trial 3 of run 2: not measured, … run; dropped: a worker died ({walk}): {MOVED}"),
        f"tuning ended after 4 trials and 3.2 s at 250.0 frames/s (best of 4 plans; no gain in 2 moves): {MOVED}",
        says("slow1 is down, by …"),
    ]


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("plan_live", {"epoch": 3, "plan": SEED, "reason": "ready"}, f"epoch 3 is live: {SEED}"),
        ("plan_refused", {"epoch": None, "plan": SEED, "reason": "no"}, f"… plan is refused (no): {SEED}"),
        ("plan_refused", {"epoch": None, "plan": None, "reason": "full"}, "a plan is …"),
        ("place_speed", {"place": "slow0", "speed": 0.1, "before": 0.3}, "the speed of slow0 is 0.1 now, 0.3 before"),
        (
            "drift",
            {"stage": 1, "place": "slow0", "before_s": 0.004, "service_s": 0.012},
            "stage 1 on slow0 takes 12.0 ms now, 4.00 ms before",
        ),
        ("tuning_ended", {"run": 1}, "tuning ended: run 1"),  # of another version
        (
            "drift",
            {"stage": 0, "place": "core0, core1", "before_s": 0.004, "service_s": 0.012},
            "stage 0 on core0, core1 takes 12.0 ms now, 4.00 ms before",
        ),
        ("part_failed", {"frame": 7, "stage": 1, "epoch": 3, "reason": "no"}, "stage 1 failed on frame 7: no"),
        (
            "part_failed",
            {"frame": 7, "stage": 1, "epoch": 3, "reason": "no", "place": "core1"},
            "stage 1 failed on frame 7 on core1: no",
        ),
        (
            "tuning_began",
            {"run": 2, "reason": "a client", "plan": str(COPIES), "alpha": 10, "objective": "latency"},
            "… latency began, run 2 (a client): core0, core1: 0-25 | core2+core3: 26-40 after the input",
        ),
        (
            "tuning_ended",
            {"run": 2, "reason": "r", "plan": "p", "trials": 3, "seconds": 1.0, "throughput_fps": 50.0}
            | {"latency_s": 0.006},
            "tuning ended after 3 trials and 1.0 s at 50.00 frames/s, latency 6.00 ms (unloaded) (r): p",
        ),
        ("draining", {"in_flight": 1}, "… 1 frame …"),
        (
            "plans_compared",
            {"objective": "latency", "plan": "p", "name": "n", "against": "a", "verdict": "no_load"}
            | {"ratio": 2.0, "seconds": 0.01, "against_seconds": 0.02, "pairs": 1},
            "n …: 10 ms … 20 ms with a (2.00 …, 1 pair …)",
        ),
        ("placed_at_once", {"plan": SEED}, f"… as frames wait: {SEED}"),
        (
            "places_allotted",
            {"taken": ["core0", "core1"], "released": ["core3"], "why": "another daemon holds core 3"},
            "core0, core1 taken; core3 released: another daemon … core 3",
        ),
        (
            "places_allotted",
            {"taken": [], "released": ["core3"], "why": "the control group may use 3 cores"},
            "core3 released: the control … use 3 cores",
        ),
        ("cluster_died", {"reason": "killed by signal 9"}, "… cluster … died …: killed by signal 9"),
        ("host_came", {"place": "far0", "host": "10.0.0.7"}, "host 10.0.0.7 has far0"),
        ("host_lost", {"place": "far0", "reason": "host 10.0.0.7: gone"}, "far0 … lost …: host 10.0.0.7: gone"),
        (
            "link_changed",
            {"place": "far0", "there_latency_s": 2e-4, "there_bytes_per_s": 1.1e8}
            | {"back_latency_s": 3e-4, "back_bytes_per_s": 1.2e9},
            "… far0 is …: 0.200 ms and 110 MB/s there, 0.300 ms and 1200 MB/s back",
        ),
        ("new_kind", {"a": 1, "b": "x\ny"}, "new kind: a 1, b x y"),
        ("new_kind", {}, "new_kind"),
    ],
)
def test_other_kinds(kind: str, fields: dict[str, object], expected: str) -> None:
    assert in_words(event(1, kind, **fields)) == says(expected)


def kinds_of(record: type[Record]) -> set[type[Record]]:
    """The records derived from this one from which none is derived."""
    derived = record.__subclasses__()
    return {record} if not derived else {kind for each in derived for kind in kinds_of(each)}


def test_there_are_words_for_every_kind() -> None:
    every = {kind for kind in kinds_of(Record) if kind.__module__ == Record.__module__}
    assert event_words._TELL.keys() == {*get_args(AnyRecord)} == every


def test_a_trial_tells_its_latency() -> None:
    line = in_words(trial(1, 0, "first", 200.0, latency_s=0.006))
    assert line.startswith("trial 0 of run 2: 200.0 frames/s ±1.2%, latency 6.00 ms (unloaded), first (where ")


def test_a_fast_plan_keeps_its_digits() -> None:
    assert "12346 frames/s" in in_words(trial(1, 0, "first", 12345.6))


def test_every_kind_that_a_daemon_writes_is_told_in_words(run: Run, daemon: DaemonProcess) -> None:
    ran = run("events", "--endpoint", daemon.endpoint)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert any("worker starts on fast0" in line for line in lines)
    assert any("  epoch 1 is live: " in line for line in lines)
    assert any(f"  ready at {daemon.endpoint}, metrics at {daemon.metrics}" in line for line in lines)
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))


def test_json(run: Run, daemon: DaemonProcess) -> None:
    whole = run("events", "--endpoint", daemon.endpoint, "--json").object
    assert whole == daemon.control.events()
    last = whole["next"] - 1
    assert run("events", "--endpoint", daemon.endpoint, "--since", last, "--json").object["events"] == [
        whole["events"][-1]
    ]


def test_what_is_followed_goes_on_with_another_daemon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which numbers its events anew."""
    logs = {"first": ["one", "two", "three"], "second": ["four", "five"]}
    looks = iter(["first", "second", "second"])
    serving = [next(looks)]

    class Asked(EventsOptions):
        def client(self) -> Any:
            return contextlib.nullcontext(self)

        def call(self, _: str) -> Any:
            return {"instance": serving[0]}

        def events(self, since: int, _: int) -> Any:
            log = logs[serving[0]][since:]
            items = [{"event": since + at, "time_s": 0.0, "kind": "said", "words": said} for at, said in enumerate(log)]
            return {"events": items, "next": since + len(log)}

    def sleep(_: float) -> None:
        serving[0] = next(looks, "")
        if not serving[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        events.__wrapped__(Asked(follow=True, as_json=True))  # type: ignore[attr-defined]
    assert [json.loads(line)["words"] for line in capsys.readouterr().out.splitlines()] == logs["first"] + logs[
        "second"
    ]


def test_follow(daemon: DaemonProcess) -> None:
    code = "import sys; from shisha_rt.cli.app import main; sys.exit(main())"
    since = daemon.control.events()["next"]
    command = [sys.executable, "-c", code, "events", "--follow", "--json", "--endpoint", daemon.endpoint]
    process = subprocess.Popen([*command, "--since", str(since)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        refused = daemon.control.set_plan([{"first": 0, "last": 0, "places": ["fast0"]}])
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(PATIENCE_S)
        entry = json.loads(process.stdout.readline())
        assert (entry["kind"], entry["reason"]) == ("plan_refused", refused["reason"])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
