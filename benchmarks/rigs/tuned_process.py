"""A daemon that tunes itself, in a separate process, and measurements as the tuner makes them, on request.

Models, profiles and optimised graphs are those of the user's cache. The best plans that the daemon stores go into the
folder `keep`, so it begins at the seed, whatever was tuned here before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.rigs.child_process import say
from benchmarks.rigs.daemon_process import Orders, slot_count
from shisha_rt.core.tuning.cores import CoreEvent, Cores, Outward
from shisha_rt.core.tuning.events import PartTaken
from shisha_rt.core.tuning.measuring import Conditions, Window
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.prepare import planned
from shisha_rt.daemon.prepared import Planning
from shisha_rt.daemon.server import Daemon
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.model.zoo import resolve_model


class Metered(Cores):
    """The cores of a daemon; `hear` is called for each part that has been computed, after them."""

    def __init__(self, cores: Cores, hear: Callable[[PartTaken, float], None]) -> None:
        super().__init__(cores.lifecycle, cores.tuning, cores.placing)
        self._meter = hear

    def handle(self, event: CoreEvent, now_s: float, cause: str = "") -> list[Outward]:
        outward = super().handle(event, now_s, cause)
        if isinstance(event, PartTaken):
            self._meter(event, now_s)
        return outward


class Meter:
    """Measures the live plan from passing frames, as in a trial."""

    def __init__(self, daemon: Daemon) -> None:
        self._cores = daemon.shell.cores = Metered(daemon.shell.cores, self._part)
        self._warm_up = slot_count(daemon) + 2  # as the tuner's
        self._epoch = 0
        self._window: Window | None = None

    @property
    def running(self) -> bool:
        return self._window is not None

    def start(self, *_: Any, **order: Any) -> None:
        self._begin(time.monotonic())

    def _begin(self, now_s: float) -> None:
        live = self._cores.lifecycle.live
        assert live is not None
        self._epoch, plan = live
        alike = [self._cores.tuning.choice.are_alike(stage) for stage in plan.stages]
        self._window = Window(live, alike, now_s, Conditions(self._warm_up))

    def _part(self, part: PartTaken, now_s: float) -> None:
        live = self._cores.lifecycle.live
        if self._window is None or live is None:
            return
        if live[0] != self._epoch:
            self._begin(now_s)
        found = None
        if part.epoch == self._epoch:
            found = self._window.add(part.stage, part.place, part.service_s, now_s)
        if found is not None:
            self._window = None
            repeatability = self._cores.tuning.measuring.repeatability
            repeatability.observe(live[1], found)
            found = repeatability.widen(found)
            say(service_s=found.service_s, band=found.band, frames=found.frames, took_s=found.took_s)


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    machine = load_machine(settings["machine"])
    check_runnable(machine)
    ready = make_ready(resolve_model(settings["model"]), machine)
    costs = layer_costs(ready)
    os.environ["XDG_CACHE_HOME"] = str(Path(settings["keep"]).resolve())
    daemon = Daemon(
        planned(ready, Planning(Settings("", strategy=settings["strategy"], objective="throughput", batch=1)), costs),
        addresses_of(Settings("", endpoint=settings["endpoint"], metrics="0")),
    )
    orders = Orders(daemon, Meter(daemon))
    daemon.run(lambda: say(endpoint=daemon.gateway.endpoint, slots=slot_count(daemon)), orders.turn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
