"""`shisha-rt demo`: everything in a minute: a daemon, frames, and two tuners that make the pipeline faster."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shisha_rt.cli.demo_report import (
    GUIDED,
    SEED,
    WALK,
    Act,
    Say,
    Seen,
    Tried,
    draw_png,
    heading,
    tell_end,
)
from shisha_rt.cli.options import Json, check_writable, takes
from shisha_rt.cli.progress import tell_terminal
from shisha_rt.errors import Failure
from shisha_rt.model.spans import layers_in_words
from shisha_rt.plan.form import plan_of
from shisha_rt.planner.seed import seed
from shisha_rt.show.event_words import Event, rate, verdict
from shisha_rt.show.picture import Box, draw, marks, milliseconds, ribbon

if TYPE_CHECKING:
    from shisha_rt.cli.drive.child_daemon import ChildDaemon
    from shisha_rt.cli.drive.traffic import Traffic
    from shisha_rt.client import AsyncClient
    from shisha_rt.machine.machine import Machine
    from shisha_rt.measure.model_on_machine import ModelOnMachine
    from shisha_rt.plan.plan import Plan

_MODEL: Final = "zoo:squeezenet"
_MACHINE: Final = "demo"
_HOW: Final = ("--strategy", "guided", "--fresh")  # as `serve` does, except for the memory of earlier runs
_PNG: Final = Path("demo.png")
_INPUTS: Final = 8
_LOOK_EVERY_S: Final = 0.1
_SILENCE_S: Final = 30.0
_SEARCH_S = 20.0
"""After which a search is stopped at its best plan; it takes a few seconds, longer on a slow or busy host."""
_LIMIT_S = 120.0
"""Of a search with its stop: the demo then fails."""
_RIBBON: Final = 32
_SAMPLE: Final = (
    "shisha_plan_epoch",
    "shisha_frames_total",
    "shisha_tuner_trials_total",
    "shisha_tuner_moves_total",
    "shisha_pipeline_throughput_fps",
    "shisha_worker_restarts_total",
    "shisha_place_speed_ratio",
)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.2, max=60, help="How long each of the three plans is counted.")
    ] = 2.0
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the picture of all three goes. Default: demo.png.")
    ] = None
    as_json: Json = False


@takes(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Start a daemon, send frames, watch it tune itself, and stop.

    SqueezeNet runs as a pipeline on the machine `demo`: two fast and two slow places, EMULATED on two cores. While
    frames flow, first Shisha's walk moves layers off the slowest stage of its seed, and then `guided` tunes, which is
    what `serve` does; each plan that they try is shown with what it measured. The seed and what both end with are
    compared, and drawn into a PNG. The first run builds the model and measures its layers.

    \b
    Examples:
      shisha-rt demo
      shisha-rt demo --seconds 10 --png pipelines.png
      shisha-rt demo --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    show_demo(options)


def show_demo(options: DemoOptions) -> None:
    from shisha_rt.cli.drive.child_daemon import child_daemon
    from shisha_rt.cli.drive.reach import plainly
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.measure.costs_of_model import layer_costs
    from shisha_rt.measure.make_ready import make_ready
    from shisha_rt.model.zoo import resolve_model

    check_writable("--png", options.png)
    say: Say = tell_terminal if options.as_json else partial(print, flush=True)
    with tempfile.TemporaryDirectory(prefix="shisha-rt-demo-") as folder:
        machine, about = _machine(Path(folder))
        ready = make_ready(resolve_model(_MODEL, say), load_machine(machine), teams=True, on_progress=say)
        layer_costs(ready, say)  # here, where progress is shown; the daemon then finds the costs stored
        say(f"starting a daemon for {_MODEL} on {about}\n")
        with child_daemon(_MODEL, "--machine", machine, *_HOW) as daemon, plainly():
            seen = asyncio.run(_Show(daemon, ready, options.seconds, say).run())
    drawn = draw_png(seen, options.png or _PNG, say)
    tell_end(seen, drawn, say)
    if options.as_json:
        print(json.dumps({**seen.as_object(), "png": drawn and str(drawn)}))
    if seen.traffic.faults:
        raise Failure(f"the demo found a fault: {seen.traffic.faults[0]}", printed=True)


def _machine(folder: Path) -> tuple[str, str]:
    """A machine of fast and slow places that this host can emulate: for `serve --machine`, and in words."""
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.machine.host.this_machine import this_machine

    shipped = load_machine(_MACHINE)
    wanted = sorted({core for place in shipped.places for core in place.cores})
    usable = [place.cores[0] for place in this_machine().places]
    about = "two fast and two slow places, EMULATED on cores 0 and 1"
    if set(wanted) <= set(usable):
        return _MACHINE, f"the machine {_MACHINE}: {about}"
    if len(usable) >= len(wanted):
        about = f"the machine {_MACHINE}, EMULATED on cores {usable[0]} and {usable[1]} (0 and 1 are not both usable)"
    else:
        about = f"a fast and a slow place, EMULATED on core {usable[0]} (the machine {_MACHINE} needs two cores)"
    path = folder / f"{_MACHINE}.toml"
    path.write_text(_moved(shipped, dict(zip(wanted, usable, strict=False))))
    return str(path), about


def _moved(machine: Machine, to: Mapping[int, int]) -> str:
    """Text of a machine file with those places whose one core is in `to`, on the core that `to` maps it to."""
    lines = []
    for memory in machine.memories:
        lines += ["[[memory]]", f'name = "{memory.name}"']
        lines.append(f"bandwidth_bytes_per_s = {memory.bandwidth_bytes_per_s}")
    for place in machine.places:
        if place.cores[0] in to:
            lines += ["[[place]]", f'name = "{place.name}"', f"cores = [{to[place.cores[0]]}]"]
            lines += [f"speed = {place.speed}", f"rank = {place.rank}", f'memory = "{place.memory}"']
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Show:
    """The demo's course against one daemon."""

    daemon: ChildDaemon
    ready: ModelOnMachine
    seconds: float
    say: Say

    async def run(self) -> Seen:
        from shisha_rt.cli.drive.frames import model_inputs, random_frames
        from shisha_rt.cli.drive.traffic import Traffic
        from shisha_rt.client import AsyncClient

        async with AsyncClient(self.daemon.endpoint) as client:
            await client.call("tuner_set", pause=True)  # until each plan has been seen as it is
            best_by_costs = (await client.plan())["stages"]
            await _take(client, self._seed())
            self._open((await client.plan())["stages"])
            inputs = model_inputs((await client.metadata())["model"])
            async with Traffic(client, random_frames(inputs, _INPUTS, seed=0)) as traffic:
                return await self._course(client, traffic, best_by_costs)

    def _seed(self) -> Plan:
        compiled = self.ready.compiled
        weights = [layer.weight for layer in compiled.layers]
        return seed(weights, self.ready.machine.places, legal_cuts=compiled.legal_cuts)

    async def _course(self, client: AsyncClient, traffic: Traffic, best_by_costs: Sequence[Event]) -> Seen:
        await traffic.first()
        counted = [await self._count(traffic)]
        self.say(f"\n{heading(2, WALK)}{_WALKING}\n{self._legend()}\n")
        walk = await self._search(client, traffic, "shisha", "the seed")
        counted.append(await self._count(traffic))
        await _take(client, best_by_costs)
        self.say(f"\n{heading(3, GUIDED)}{_GUIDING}\n{self._legend()}\n")
        guided = await self._search(client, traffic, "guided", "the best by measured costs")
        counted.append(await self._count(traffic))
        self.say("")
        await traffic.end()
        status = await client.status()
        page = await asyncio.to_thread(_page, self.daemon.metrics)
        measured = {"seed": walk.trials[0], "walk": walk.best, "guided": guided.best}
        return Seen(
            status=status,
            acts={
                name: Act.of(trial, *counts) for (name, trial), counts in zip(measured.items(), counted, strict=True)
            },
            searches=(walk, guided),
            traffic=traffic,
            metrics_page=self.daemon.metrics,
            metrics=[line for line in page.splitlines() if line.split("{")[0].split(" ")[0] in _SAMPLE],
        )

    async def _count(self, traffic: Traffic) -> tuple[int, float]:
        """Count the frames that are answered in the next seconds; return the count and the time that it took."""
        loop = asyncio.get_running_loop()
        self.say(f"For {self.seconds:g} s it serves as it is ...")
        since_s = loop.time()  # the same clock as time.monotonic()
        await traffic.flow(self.seconds)
        while not (frames := traffic.answered_since(since_s)) and loop.time() < since_s + _SILENCE_S:
            await traffic.flow(_LOOK_EVERY_S)
        seconds = loop.time() - since_s
        if not frames:
            raise Failure(f"no frame was answered in {seconds:.0f} s")
        self.say(f"{frames / seconds:.0f} frames/s.")
        return frames, seconds

    async def _search(self, client: AsyncClient, traffic: Traffic, strategy: str, first: str) -> Tried:
        """Start a tuner, show each of its trials, and wait until its plan is live. `first`: the first trial's name."""
        loop = asyncio.get_running_loop()
        stop_s = loop.time() + _SEARCH_S
        trials: list[Event] = []
        end: Event | None = None
        stopped = False
        async for event in self._news(client, traffic, strategy):
            if event is None:
                tuner = (await client.call("tuner_get"))["tuner"]
                if end is not None and tuner["state"] == "watching":
                    break
                known = any(trial["plan"] == tuner["best_plan"] for trial in trials)
                if stopped and known and str(plan_of((await client.plan())["stages"])) == tuner["best_plan"]:
                    why = f"stopped here after {_SEARCH_S:g} s, best of {len(trials)} so far; a daemon goes on"
                    end = {"plan": tuner["best_plan"], "reason": why, "seconds": _SEARCH_S}
                    break
                if end is None and known and not stopped and loop.time() > stop_s:
                    stopped = True
                    await client.call("tuner_set", pause=True)  # the best plan stays live
            elif event["kind"] == "tuning_began":
                end = None  # a search begins anew if the machine changes meanwhile
            elif event["kind"] == "trial":
                follows = bool(trials) and trials[-1]["run"] == event["run"]
                self.say(self._row(event, strategy, trials[-1] if follows else None, "" if trials else first))
                trials.append(event)
            elif event["kind"] == "tuning_ended":
                end = event
        assert end is not None  # the loop breaks only with an end
        await client.call("tuner_set", pause=True)  # counted without a tuner, as the seed was
        self.say(f"\nIt has ended: {end['reason']}.")
        return Tried(strategy, trials, end)

    async def _news(self, client: AsyncClient, traffic: Traffic, strategy: str) -> AsyncIterator[Event | None]:
        """Restart the tuner and yield the daemon's events from now on; None whenever there is nothing new."""
        loop = asyncio.get_running_loop()
        next_event = 0
        while (page := await client.events(next_event))["events"]:
            next_event = page["next"]
        await client.call("tuner_set", strategy=strategy, restart=True)
        end_s = loop.time() + _LIMIT_S
        while True:
            page = await client.events(next_event)
            next_event = page["next"]
            for event in page["events"]:
                yield event
            yield None
            if loop.time() > end_s:
                tuner = (await client.call("tuner_get"))["tuner"]
                raise Failure(
                    f"the tuner did not end within {_LIMIT_S:g} s: it is {tuner['state']}, "
                    f"trials so far: {tuner['trials']}"
                )
            await traffic.flow(_LOOK_EVERY_S)

    def _open(self, stages: Sequence[Event]) -> None:
        weights = [layer.weight for layer in self.ready.compiled.layers]
        whole = sum(weights)
        boxes = []
        for stage in stages:
            share = sum(weights[stage["first"] : stage["last"] + 1]) / whole
            layers = layers_in_words([(stage["first"], stage["last"])])
            boxes.append(Box(stage["places"][0], layers, f"{share:5.1%}", share))
        self.say(
            f"{heading(1, SEED)}{len(weights)} layers cut by their weights (Algorithm 1). Nothing is measured for it.\n"
            f"\n{draw(boxes, shutil.get_terminal_size().columns)}\n\n"
            f"The daemon (pid {self.daemon.pid}) serves at {self.daemon.endpoint}. "
            "Frames flow without a pause from here on."
        )

    def _marks(self) -> dict[str, str]:
        return marks([place.name for place in self.ready.machine.places])

    def _legend(self) -> str:
        key = "  ".join(f"{mark} {place}" for place, mark in self._marks().items())
        legend = "Each plan goes live and is measured: frames/s as its slowest stage allows, EMULATED."
        return f"{legend}\nA mark is a layer: {key}"

    def _row(self, trial: Event, strategy: str, before: Event | None, name: str) -> str:
        """Why a plan was tried, and the result: its `name`, if it has one, instead of the verdict."""
        lines = []
        if before is not None:
            slowest = f"{_slowest(before)} is the slowest: " if strategy == "shisha" else ""
            lines.append(f"       {slowest}{trial['reason']}")
        mark_of = self._marks()
        stretches = [
            ("".join(mark_of[place] for place in stage["places"]), stage["last"] - stage["first"] + 1)
            for stage in trial["stages"]
        ]
        measured = f"{rate(trial)} frames/s ±{trial['band']:.1%}" if trial["throughput_fps"] else trial["trouble"]
        lines.append(f"{trial['trial']:5}  {ribbon(stretches, _RIBBON)}  {measured}  {name or verdict(trial)}")
        return "\n".join(lines)


_WALKING: Final = "It takes a layer off the slowest stage, measures, and goes on from there (Algorithm 2)."
_GUIDING: Final = (
    "It begins with the plan that is best by measured layer costs, corrects them by what stages\n"
    "really take, and plans again. A stage that has copies has the marks of all of them, in turn."
)


async def _take(client: AsyncClient, plan: Plan | Sequence[Event]) -> None:
    settled = await client.set_plan(plan)
    if settled["outcome"] != "live":
        raise Failure(f"a plan is {settled['outcome']}: {settled['reason']}")


def _slowest(trial: Event) -> str:
    times_s = trial["service_s"]
    if not times_s:
        return "a stage that cannot run"
    slowest_s = max(times_s)
    return f"{trial['stages'][times_s.index(slowest_s)]['places'][0]} ({milliseconds(slowest_s)})"


def _page(url: str) -> str:
    """The metrics page, fetched without any proxy that the environment may name."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as page:
        content: bytes = page.read()
    return content.decode()
