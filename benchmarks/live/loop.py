"""How long a turn of the daemon's loop lasts: `python -m benchmarks loop`.

During a turn of the loop no message is handled, so R10 requires short turns. A turn's time is the CPU time of the
loop's own thread between two polls, as wall time would include other work on the host. The daemon runs on many places
that share the cores, with its tuner, under a steady load. Meanwhile clients cause all kinds of work: they set plans (a
chain over all places, copies on all of them, teams), change the objective and start searches, take places down and up,
slow one; workers are killed; `status` is polled, and `events` from the first one on.

The table states times of turns: of all, and by the kind of event that was handled. A second table states what the
longest turns were doing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.report.report import Report
from benchmarks.report.results import Row
from benchmarks.rigs.child_process import ChildProcess
from benchmarks.rigs.daemons import Rig
from benchmarks.rigs.steady_load import SteadyLoad, Tally
from shisha_rt.client import Client
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.compile import compile_model
from shisha_rt.model.zoo import resolve_model
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.seed import seed
from tests.serving.daemon_process import machine_file

MODEL: Final = "squeezenet"
_AIM_MS: Final = {"p99.9": 1.0, "largest": 5.0}
_TIMEOUT_S: Final = 300.0
_POLL_EVERY_S: Final = 0.5
_CHANGE_EVERY_S: Final = (0.5, 3.0)
_EXTRA_IN_FLIGHT: Final = 4  # beyond the daemon's slots: frames that wait at the door or travel
_SHARES: Final = ("p50", "p99", "p99.9", "largest")


class Unrest:
    """Actions of clients and failures; each call of `change` causes one."""

    def __init__(self, control: Client, plans: Sequence[Plan], generator: random.Random) -> None:
        self._control = control
        self._plans = plans
        self._generator = generator
        self._down: str | None = None
        self._slow: str | None = None
        self._kinds: tuple[Callable[[], object], ...] = (
            self._set_plan,
            self._set_plan,
            self._search,
            self._search,
            self._kill,
            self._take_down_or_up,
            self._slow_down_or_up,
        )
        self.changes = 0

    def change(self) -> None:
        self.changes += 1
        self._generator.choice(self._kinds)()

    def poll(self) -> None:
        """Request all that a page that shows everything would request."""
        self._control.status()
        self._control.events(since=0, limit=10_000)

    def _set_plan(self) -> None:
        """Set a plan; it may be refused or dropped, as places are down or die."""
        self._control.set_plan(self._generator.choice(self._plans), timeout_s=_TIMEOUT_S)

    def _search(self) -> None:
        strategy = self._generator.choice(("guided", "shisha"))
        objective = self._generator.choice(("throughput", "latency"))
        self._control.call("tuner_set", restart=True, strategy=strategy, objective=objective)

    def _kill(self) -> None:
        up = [place["pid"] for place in self._control.status()["places"] if place["state"] == "up"]
        if up:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._generator.choice(up), signal.SIGKILL)

    def _take_down_or_up(self) -> None:
        if self._down is None:
            self._down = self._generator.choice(self._names())
            self._control.call("place_set", place=self._down, down=True)
        else:
            self._control.call("place_set", place=self._down, up=True)
            self._down = None

    def _slow_down_or_up(self) -> None:
        """Change a place's speed, to no less than half: a chain is as slow as its slowest place."""
        if self._slow is None:
            self._slow = self._generator.choice(self._names())
            self._control.call("place_set", place=self._slow, speed=0.5)
        else:
            self._control.call("place_set", place=self._slow, speed=1.0)
            self._slow = None

    def _names(self) -> list[str]:
        return [place["name"] for place in self._control.status()["places"]]


def plans_over(model: str, machine: Path) -> list[Plan]:
    """A chain, copies and teams over all places; and a chain in which each stage has two copies."""
    compiled = compile_model(resolve_model(f"zoo:{model}"))
    places = load_machine(str(machine)).places
    names, weights = [place.name for place in places], [layer.weight for layer in compiled.layers]
    last, half = len(weights) - 1, len(names) // 2
    chain = seed(weights, places, legal_cuts=compiled.legal_cuts)
    halves = seed(weights, places[:half], legal_cuts=compiled.legal_cuts)
    pairs = list(zip(names[:half], names[half:], strict=False))
    mates = dict(pairs)
    return [
        chain,
        Plan.chain([(0, last, [(name,) for name in names])]),
        Plan.chain([(0, last, pairs)]),
        Plan.chain([(stage.first, stage.last, [(stage.place,), (mates[stage.place],)]) for stage in halves.stages]),
    ]


def drive(child: ChildProcess, load: SteadyLoad, unrest: Unrest, seconds: float) -> dict[str, Any]:
    generator = random.Random(0)
    until_s = time.monotonic() + seconds
    change_s = 0.0
    while (now_s := time.monotonic()) < until_s:
        load.check()
        unrest.poll()
        if now_s >= change_s:
            unrest.change()
            change_s = now_s + generator.uniform(*_CHANGE_EVERY_S)
        time.sleep(_POLL_EVERY_S)
    return child.ask()


def _row(what: str, figures: dict[str, float]) -> Row:
    return {"what": what, "count": int(figures["count"])} | {f"{share} ms": 1e3 * figures[share] for share in _SHARES}


def show_turns(stretches: dict[str, Any], tally: Tally, places: int, changes: int, report: Report) -> None:
    by_what = sorted(stretches["by_what"].items(), key=lambda item: -item[1]["largest"])
    rows = [_row("turns", stretches["turns"]), *(_row(what, figures) for what, figures in by_what)]
    longest: list[Row] = [
        {"ms": 1e3 * seconds, "what came, with ms": causes} for seconds, causes in stretches["longest"]
    ]
    aims = ", ".join(f"{share} {aim_ms:g} ms" for share, aim_ms in _AIM_MS.items())
    report.show(
        "CPU time of the daemon's loop between two polls",
        rows,
        [
            f"{changes} changes; {tally.answered} frames answered, {tally.errors} errors, {tally.lost} lost.",
            f"Aims: {aims}, on a core at 4 GHz.",
            "All but turns: without what has a name of its own within. collection N: of garbage, by the interpreter.",
        ],
    )
    report.show("The longest turns", longest)
    report.about["changes"] = str(changes)
    report.save(rows, f"loop_{places}")


def loop(
    model: Annotated[str, typer.Option(help="A network of the zoo.")] = MODEL,
    places: Annotated[int, typer.Option(min=4, help="Places, which share the cores.")] = 8,
    seconds: Annotated[float, typer.Option(min=1, help="How long; 600 for figures.")] = 30.0,
) -> None:
    """How long the daemon's loop runs at a stretch, whatever happens to it."""
    report = Report("loop", {"places": f"{places}, which share the cores"})
    with Rig() as rig:
        folder = rig.folder()
        machine = machine_file(folder, [f"p{i}" for i in range(places)])
        plans = plans_over(model, machine)
        options = {
            "model": f"zoo:{model}",
            "machine": str(machine),
            "endpoint": "tcp://127.0.0.1:0",
            "keep": str(folder),
        }
        child = rig.child("loop_process", **options)
        up = child.ready
        control = rig.control(up["endpoint"])
        load = rig.enter_context(SteadyLoad(up["endpoint"], up["slots"] + _EXTRA_IN_FLIGHT))
        unrest = Unrest(control, plans, random.Random(0))
        report.step(f"{seconds:g} s of unrest on {places} places")
        stretches = drive(child, load, unrest, seconds)
        tally = load.stop()
    show_turns(stretches, tally, places, unrest.changes, report)
