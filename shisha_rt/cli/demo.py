"""`shisha-rt demo`: the whole of it in half a minute: a daemon, frames, and a tuner that makes the pipeline faster."""

from __future__ import annotations

import asyncio
import json
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shisha_rt.cli.options import Json, progress
from shisha_rt.cli.views.demo_report import Act, Say, Seen, columns, draw_png, tell_end
from shisha_rt.cli.views.picture import Box, draw, marks, milliseconds, ribbon, span
from shisha_rt.cli.views.story import Event, rate, verdict
from shisha_rt.errors import BadInput, Failure

if TYPE_CHECKING:
    from shisha_rt.cli.drive.child_daemon import ChildDaemon
    from shisha_rt.cli.drive.traffic import Traffic
    from shisha_rt.client import AsyncClient
    from shisha_rt.machine.machine import Machine
    from shisha_rt.ready.compile import Compiled

_MODEL: Final = "zoo:squeezenet"
_MACHINE: Final = "demo"
_PNG: Final = Path("demo.png")
_INPUTS: Final = 8
_LOOK_EVERY_S: Final = 0.1
_TUNING_LIMIT_S: Final = 120.0  # a walk takes a few seconds
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


def demo(
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.2, max=60, help="How long seed and tuned plan are compared.")
    ] = 3.0,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the picture of both pipelines goes. Default: demo.png.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a daemon, stream frames to it, watch it tune itself, and stop.

    SqueezeNet runs as a pipeline on the machine `demo`: two fast and two slow places, EMULATED on two cores. While
    frames flow the tuner moves layers off the slowest stage; each plan that it tries is shown with what it measured.
    The seed and the tuned plan are compared at the end, and drawn into a PNG. The first run builds the model.

    \b
    Examples:
      shisha-rt demo
      shisha-rt demo --seconds 10 --png pipelines.png
      shisha-rt demo --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.cli.drive.child_daemon import child_daemon
    from shisha_rt.cli.drive.reach import plainly
    from shisha_rt.graph.zoo import resolve_model
    from shisha_rt.ready.compile import compile_model

    def to_reader(text: str) -> None:
        print(text, flush=True)

    if png is not None and not png.parent.is_dir():
        raise BadInput(f"--png {png}: {png.parent} is no folder, expected a file in one that is there")
    say = progress if as_json else to_reader
    compiled = compile_model(resolve_model(_MODEL, say), {}, say)
    with tempfile.TemporaryDirectory(prefix="shisha-rt-demo-") as folder:
        machine, about = _machine(Path(folder))
        say(f"starting a daemon for {_MODEL} on {about}\n")
        how = ("--strategy", "shisha", "--no-replicate", "--fresh")
        with child_daemon(_MODEL, "--machine", machine, *how) as daemon, plainly():
            seen = asyncio.run(_Show(daemon, compiled, seconds, say).run())
    drawn = draw_png(seen, png or _PNG, say)
    tell_end(seen, drawn, say)
    if as_json:
        print(json.dumps({**seen.as_object(), "png": drawn and str(drawn)}))
    if seen.faults:
        raise Failure(f"the demo found a fault: {seen.faults[0]}")


# --- the machine ----------------------------------------------------------------------------------------------


def _machine(folder: Path) -> tuple[str, str]:
    """A machine of fast and slow places that this host can emulate, as `serve` takes it, and in words."""
    from shisha_rt.machine.config.machine_file import load_machine
    from shisha_rt.machine.detect import this_machine

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
    """A machine file with the places of one core each that `to` has another core for."""
    lines = []
    for memory in machine.memories:
        lines += ["[[memory]]", f'name = "{memory.name}"']
        lines.append(f"bandwidth_bytes_per_s = {memory.bandwidth_bytes_per_s}")
    for place in machine.places:
        if place.cores[0] in to:
            lines += ["[[place]]", f'name = "{place.name}"', f"cores = [{to[place.cores[0]]}]"]
            lines += [f"speed = {place.speed}", f"rank = {place.rank}", f'memory = "{place.memory}"']
    return "\n".join(lines)


# --- the course -----------------------------------------------------------------------------------------------


class _Show:
    """The demo's course against one daemon."""

    def __init__(self, daemon: ChildDaemon, compiled: Compiled, seconds: float, say: Say) -> None:
        self._daemon = daemon
        self._compiled = compiled
        self._seconds = seconds
        self._say = say
        self._marks: dict[str, str] = {}

    async def run(self) -> Seen:
        from shisha_rt.cli.drive.frames import model_inputs, random_frames
        from shisha_rt.cli.drive.traffic import Traffic
        from shisha_rt.client import AsyncClient

        async with AsyncClient(self._daemon.endpoint) as client:
            await client.call("tuner_set", pause=True)  # until the seed has been seen as it is
            self._open(await client.status())
            inputs = model_inputs((await client.metadata())["model"])
            traffic = Traffic(client, random_frames(inputs, _INPUTS, seed=0))
            task = asyncio.create_task(traffic.run())
            try:
                return await self._course(client, traffic, task)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _course(self, client: AsyncClient, traffic: Traffic, task: asyncio.Task[None]) -> Seen:
        await asyncio.wait({task, asyncio.create_task(traffic.first())}, return_when=asyncio.FIRST_COMPLETED)
        seed_frames, seed_s = await self._count(traffic, task)
        self._say(f"{seed_frames / seed_s:.0f} frames/s.\n\n{self._heading()}")
        trials, end = await self._tune(client, task)
        await client.call("tuner_set", pause=True)  # the same rest as the seed had
        self._say(f"\nThe tuner has ended: {end['reason']}.\nFor {self._seconds:g} s its plan serves as it is ...")
        tuned_frames, tuned_s = await self._count(traffic, task)
        self._say(f"{tuned_frames / tuned_s:.0f} frames/s.\n")
        traffic.stop()
        await task
        status = await client.status()
        page = await asyncio.to_thread(_page, self._daemon.metrics)
        best = next(trial for trial in reversed(trials) if trial["plan"] == end["plan"])
        lost = traffic.sent - traffic.answered - len(traffic.errors)
        return Seen(
            status=status,
            seed=Act.of(trials[0], seed_frames, seed_s),
            tuned=Act.of(best, tuned_frames, tuned_s),
            trials=trials,
            end=end,
            sent=traffic.sent,
            answered=traffic.answered,
            lost=lost,
            out_of_order=traffic.out_of_order,
            different=traffic.different,
            errors=len(traffic.errors),
            faults=_faults(traffic, lost),
            gaps=traffic.gaps(),
            metrics_page=self._daemon.metrics,
            metrics=[line for line in page.splitlines() if line.split("{")[0].split(" ")[0] in _SAMPLE],
        )

    async def _count(self, traffic: Traffic, task: asyncio.Task[None]) -> tuple[int, float]:
        """The frames that are answered in the next seconds, and in how many those were."""
        loop = asyncio.get_running_loop()
        since_s = loop.time()  # the same clock as time.monotonic()
        await _let_flow(task, self._seconds)
        frames, seconds = traffic.answered_since(since_s), loop.time() - since_s
        if not frames:
            raise Failure(f"no frame was answered in {self._seconds:g} s; try a longer --seconds")
        return frames, seconds

    async def _tune(self, client: AsyncClient, task: asyncio.Task[None]) -> tuple[list[Event], Event]:
        """Let the tuner go, show each of its trials, and wait until its plan is live; the trials and the end."""
        trials: list[Event] = []
        end: Event | None = None
        async for event in self._news(client, task):
            if event is None:
                if end is not None and (await client.call("tuner_get"))["tuner"]["state"] == "watching":
                    return trials, end
            elif event["kind"] == "tuning_began":
                end = None  # it begins anew where the machine changes under it
            elif event["kind"] == "trial":
                follows = bool(trials) and trials[-1]["run"] == event["run"]
                self._say(self._row(event, trials[-1] if follows else None, "" if trials else "the seed"))
                trials.append(event)
            elif event["kind"] == "tuning_ended":
                end = event
        raise AssertionError("news never end")

    async def _news(self, client: AsyncClient, task: asyncio.Task[None]) -> AsyncIterator[Event | None]:
        """The daemon's events from now on, with the tuner let go; None whenever there is nothing new."""
        loop = asyncio.get_running_loop()
        next_event = 0
        while (page := await client.events(next_event))["events"]:
            next_event = page["next"]
        await client.call("tuner_set", restart=True)
        end_s = loop.time() + _TUNING_LIMIT_S
        while True:
            page = await client.events(next_event)
            next_event = page["next"]
            for event in page["events"]:
                yield event
            yield None
            if loop.time() > end_s:
                tuner = (await client.call("tuner_get"))["tuner"]
                raise Failure(
                    f"the tuner did not end within {_TUNING_LIMIT_S:g} s: it is {tuner['state']}, "
                    f"trials so far: {tuner['trials']}"
                )
            await _let_flow(task, _LOOK_EVERY_S)

    # --- telling ----------------------------------------------------------------------------------------------

    def _open(self, status: Mapping[str, Any]) -> None:
        weights = [layer.weight for layer in self._compiled.layers]
        whole = sum(weights)
        boxes = []
        for stage in status["plan"]["stages"]:
            share = sum(weights[stage["first"] : stage["last"] + 1]) / whole
            boxes.append(Box(stage["places"][0], span(stage["first"], stage["last"]), f"{share:5.1%}", share))
        self._marks = marks([place["name"] for place in status["places"]])
        self._say(
            f"The seed: {len(weights)} layers cut by their weights (Shisha, Algorithm 1); nothing is measured yet.\n\n"
            f"{draw(boxes, columns())}\n\n"
            f"The daemon (pid {self._daemon.pid}) serves at {self._daemon.endpoint}. "
            f"Frames flow without a pause from here on.\nFor {self._seconds:g} s the seed serves as it is ..."
        )

    def _heading(self) -> str:
        key = "  ".join(f"{mark} {place}" for place, mark in self._marks.items())
        return (
            "Now the tuner may move layers (Shisha, Algorithm 2). Each plan that it tries goes live, and is measured:\n"
            f"frames/s as its slowest stage allows, EMULATED. A mark is a layer: {key}\n"
        )

    def _row(self, trial: Event, before: Event | None, name: str) -> str:
        """What was moved, and what came of it. A plan that has a name is not judged."""
        lines = []
        if before is not None:
            lines.append(f"       {_slowest(before)} is the slowest: {trial['reason']}")
        stretches = [(self._marks[stage["places"][0]], stage["last"] - stage["first"] + 1) for stage in trial["stages"]]
        measured = f"{rate(trial)} frames/s ±{trial['band']:.1%}" if trial["throughput_fps"] else trial["trouble"]
        lines.append(f"{trial['trial']:5}  {ribbon(stretches, _RIBBON)}  {measured}  {name or verdict(trial)}")
        return "\n".join(lines)


def _slowest(trial: Event) -> str:
    """Its slowest stage and the time that it takes."""
    times_s = trial["service_s"]
    if not times_s:
        return "a stage that cannot run"
    slowest_s = max(times_s)
    return f"{trial['stages'][times_s.index(slowest_s)]['places'][0]} ({milliseconds(slowest_s)})"


def _faults(traffic: Traffic, lost: int) -> list[str]:
    faults = [
        (lost, "lost"),
        (traffic.out_of_order, "out of order"),
        (traffic.different, "with another result than under the seed"),
        (len(traffic.errors), f"ended in an error, the first: {traffic.errors[0].message if traffic.errors else ''}"),
    ]
    return [f"{count} {what}" for count, what in faults if count]


async def _let_flow(task: asyncio.Task[None], seconds: float) -> None:
    await asyncio.wait({task}, timeout=seconds)
    if task.done():
        task.result()  # raises what went wrong


def _page(url: str) -> str:
    """The metrics page, from this machine itself: no proxy that the environment may name is asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as page:
        content: bytes = page.read()
    return content.decode()
