"""A daemon that tunes itself, in a process of its own; and the tuner's own way of measuring, when asked for it.

The models, profiles and optimised graphs are those of the user's cache. What the daemon keeps from then on, which is
the best plan known, goes into the folder `keep`: so it begins at the seed, whatever was tuned here before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.rigs.child_process import say
from benchmarks.rigs.daemon_process import Orders
from shisha_rt.costs.layer_costs import LayerCosts
from shisha_rt.daemon.server import Daemon
from shisha_rt.graph.zoo import resolve_model
from shisha_rt.machine.config.machine_file import check_runnable, load_machine
from shisha_rt.ready.compile import compile_model
from shisha_rt.ready.profile import profile_model
from shisha_rt.tuning.window import Window


class Meter:
    """Measures the live plan from the frames that pass, as a trial is measured."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._warm_up = daemon.shell.lifecycle.slot_count + 2  # as the tuner's
        self._epoch = 0
        self._window: Window | None = None
        daemon.shell.on_part = self._part

    @property
    def running(self) -> bool:
        return self._window is not None

    def start(self, *_: Any, **order: Any) -> None:
        self._begin()

    def _begin(self) -> None:
        live = self._daemon.tuning.live
        assert live is not None
        self._epoch, plan = live
        self._window = Window(len(plan.stages), self._warm_up)

    def _part(self, epoch: int, stage: int, service_s: float) -> None:
        self._daemon.tuning.frame_done(epoch, stage, service_s)
        if self._window is None:
            return
        live = self._daemon.tuning.live
        if live is None or live[0] != self._epoch:
            self._begin()
        if live is None or epoch != self._epoch:
            return
        found = self._window.add(stage, service_s, time.monotonic())
        if found is not None:
            self._window = None
            repeatability = self._daemon.tuning.repeatability
            repeatability.observe(live[1], found)
            found = repeatability.widen(found)
            say(service_s=found.service_s, band=found.band, frames=found.frames, took_s=found.took_s)


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    machine = load_machine(settings["machine"])
    check_runnable(machine)
    compiled = compile_model(resolve_model(settings["model"]), {})
    costs = LayerCosts(profile_model(compiled, machine), machine)
    os.environ["XDG_CACHE_HOME"] = str(Path(settings["keep"]).resolve())
    daemon = Daemon(
        compiled,
        machine,
        settings["endpoint"],
        metrics_port=0,
        stored=costs,
        strategy=settings["strategy"],
    )
    orders = Orders(daemon, Meter(daemon))
    daemon.run(lambda: say(endpoint=daemon.gateway.endpoint, slots=daemon.shell.lifecycle.slot_count), orders.turn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
