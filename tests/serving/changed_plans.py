"""One plan after the other under load, with workers killed between: what is told of each, and that frames go on."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final

from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import DaemonProcess
from tests.serving.load import Load
from tests.waiting import until

_WINDOW_S: Final = 31.0
_MOST: Final = 3
"""Deaths of one place within that time: more than five in 30 s would cost it, and other tests kill, too."""


class Kills:
    """Workers killed in turns, as soon as it costs none its place. `count`: so many so far."""

    def __init__(self, daemon: DaemonProcess, places: Sequence[str]) -> None:
        self.count = 0
        self._daemon = daemon
        self._places = places
        self._killed_s: dict[str, deque[float]] = {place: deque(maxlen=_MOST) for place in places}
        self._before = self._restarts()

    def kill_next(self) -> None:
        place = self._places[self.count % len(self._places)]
        killed_s = self._killed_s[place]
        if len(killed_s) == _MOST:
            time.sleep(max(0.0, killed_s[0] + _WINDOW_S - time.monotonic()))
        pid = self._daemon.worker_pids()[place]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed_s.append(time.monotonic())
        self.count += 1

    def wait_until_noticed(self) -> None:
        """The daemon may hear of the last death after the last answer."""
        assert self.count > 0
        until(lambda: self._restarts() >= self._before + self.count, "the death of the last one that was killed")

    def _restarts(self) -> int:
        return sum(place["restarts"] for place in self._daemon.control.status()["places"])


def change_plans(
    daemon: DaemonProcess, load: Load, plans: Iterable[Plan], places: Sequence[str], kill_every: int
) -> int:
    """Make each live, and wait for answers after it; returns how many workers were killed."""
    ends: Counter[str] = Counter()
    kills = Kills(daemon, places)
    for number, plan in enumerate(plans):
        if number % kill_every == kill_every - 1:
            kills.kill_next()
        end = daemon.control.set_plan(plan)
        ends[end["outcome"]] += 1
        assert end["outcome"] in ("live", "dropped"), (plan, end)
        if end["outcome"] == "live":
            stages = daemon.control.plan()["stages"]
            assert [{k: v for k, v in stage.items() if k != "service_s"} for stage in stages] == written(plan)
        load.wait_for_answers(3)
    assert ends["live"] > 0.8 * ends.total(), ends
    kills.wait_until_noticed()
    return kills.count
