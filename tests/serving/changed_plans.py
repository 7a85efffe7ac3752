"""One plan after the other under load, with workers killed between: what is told of each, and that frames go on."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Sequence

from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import DaemonProcess
from tests.serving.load import Load
from tests.waiting import until


def change_plans(
    daemon: DaemonProcess, load: Load, plans: Iterable[Plan], places: Sequence[str], kill_every: int
) -> int:
    """Make each live, and wait for answers after it; returns how many workers were killed.

    They are killed in turns, far enough apart: more than five deaths of one place in 30 s would cost it.
    """

    def restarts() -> int:
        return sum(place["restarts"] for place in daemon.control.status()["places"])

    ends: Counter[str] = Counter()
    killed, before = 0, restarts()
    for number, plan in enumerate(plans):
        if number % kill_every == kill_every - 1:
            pid = daemon.worker_pids()[places[killed % len(places)]]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed += 1
        end = daemon.control.set_plan(plan)
        ends[end["outcome"]] += 1
        assert end["outcome"] in ("live", "dropped"), (plan, end)
        if end["outcome"] == "live":
            told = daemon.control.plan()["stages"]
            assert [{k: v for k, v in stage.items() if k != "service_s"} for stage in told] == written(plan)
        load.wait_for_answers(3)
    assert ends["live"] > 0.8 * ends.total(), ends
    assert killed > 0
    until(lambda: restarts() >= before + killed, "the death of the last one that was killed")
    return killed
