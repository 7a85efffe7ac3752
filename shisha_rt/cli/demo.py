"""`shisha-rt demo`: the whole of it in half a minute: a daemon, frames, and plans that change under load."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shisha_rt.cli.options import Json, progress
from shisha_rt.cli.picture import Box, draw, ribbon, span
from shisha_rt.cli.status import milliseconds, stage_boxes
from shisha_rt.errors import Failure

if TYPE_CHECKING:
    from shisha_rt.cli.child_daemon import ChildDaemon
    from shisha_rt.cli.traffic import Flow, Traffic
    from shisha_rt.daemon.compile import Compiled

_MODEL: Final = "zoo:squeezenet"
_INPUTS: Final = 8
_MOST_PLACES: Final = 4  # a picture that fits a screen; `serve` takes all there are
_STEPS: Final = (-2, -1, 1, 2)
_LAYERS_PER_STEP: Final = 2
_SAMPLE: Final = (
    "shisha_plan_epoch",
    "shisha_frames_total",
    "shisha_plan_proposals_total",
    "shisha_pipeline_throughput_fps",
    "shisha_stage_layers",
)

Stages = list[dict[str, Any]]
Say = Callable[[str], None]


def demo(
    seconds: Annotated[float, typer.Option(metavar="S", min=0.2, max=60, help="How long each plan is measured.")] = 2.0,
    as_json: Json = False,
) -> None:
    """Start a daemon, stream frames to it, change its plan live, and stop.

    SqueezeNet runs as a pipeline on this machine's cores. While frames flow, the cut between two stages moves a few
    layers each way, and ends where most frames came through. This walk is made by hand, to show what a change of plan
    costs; the daemon's own tuner is off. The first run builds the model.

    \b
    Examples:
      shisha-rt demo
      shisha-rt demo --seconds 5
      shisha-rt demo --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.cli.child_daemon import child_daemon
    from shisha_rt.cli.reach import plainly
    from shisha_rt.daemon.compile import compile_model
    from shisha_rt.graph.zoo import resolve_model

    def to_reader(text: str) -> None:
        print(text, flush=True)

    say = progress if as_json else to_reader
    compiled = compile_model(resolve_model(_MODEL, say), {}, say)
    with tempfile.TemporaryDirectory(prefix="shisha-rt-demo-") as folder:
        machine, about = _machine(Path(folder))
        say(f"starting a daemon for {_MODEL} on {about}\n")
        with child_daemon(_MODEL, "--machine", machine, "--strategy", "seed") as daemon, plainly():
            show = asyncio.run(_Show(daemon, compiled, seconds, say).run())
    if as_json:
        print(json.dumps(show))
    if show["faults"]:
        raise Failure(f"the demo found a fault: {show['faults'][0]}")


def _machine(folder: Path) -> tuple[str, str]:
    """A machine of two to four places on what this one has, as `serve` takes it, and in words."""
    from shisha_rt.machine.detect import this_machine

    places = this_machine().places
    if 2 <= len(places) <= _MOST_PLACES:
        return "this-machine", f"this machine's {len(places)} cores, one stage on each"
    if len(places) == 1:
        core = places[0].cores[0]
        lines = [f'[[place]]\nname = "half{i}"\ncores = [{core}]\nshared = true\n' for i in range(2)]
        about = "this machine's only core, two stages taking turns"
    else:
        lines = [f'[[place]]\nname = "{p.name}"\ncores = {list(p.cores)}\nrank = {p.rank}\n' for p in places[:4]]
        about = f"{_MOST_PLACES} of this machine's {len(places)} cores, one stage on each"
    path = folder / "demo.toml"
    path.write_text("".join(lines))
    return str(path), about


@dataclass(frozen=True, slots=True)
class _Act:
    """One plan that was live, and how it did."""

    epoch: int
    note: str
    stages: Stages
    slowest_s: float
    flow: Flow


class _Show:
    """The demo's course against one daemon. `run` returns the object of `--json`."""

    def __init__(self, daemon: ChildDaemon, compiled: Compiled, seconds: float, say: Say) -> None:
        self._daemon = daemon
        self._compiled = compiled
        self._seconds = seconds
        self._say = say
        self._width = shutil.get_terminal_size().columns

    async def run(self) -> dict[str, Any]:
        from shisha_rt.cli.frames import model_inputs, random_frames
        from shisha_rt.cli.traffic import Traffic
        from shisha_rt.client import AsyncClient

        async with AsyncClient(self._daemon.endpoint) as client:
            seed = (await client.plan())["stages"]
            self._open(seed)
            inputs = model_inputs((await client.metadata())["model"])
            traffic = Traffic(client, random_frames(inputs, _INPUTS, seed=0))
            task = asyncio.create_task(traffic.run())
            try:
                acts = await self._walk(client, seed, traffic, task)
                traffic.stop()
                await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            page = await asyncio.to_thread(_page, self._daemon.metrics)
        return self._close(acts, traffic, page)

    async def _walk(self, client: Any, seed: Stages, traffic: Traffic, task: asyncio.Task[None]) -> list[_Act]:
        """The seed, the cut of its slowest stage moved each way, and the best of all again."""
        await asyncio.wait({task, asyncio.create_task(traffic.first())}, return_when=asyncio.FIRST_COMPLETED)
        acts = [await self._act(client, None, "the seed", traffic, task)]
        for note, stages in moved_cuts(acts[0].stages, self._compiled.legal_cuts):
            acts.append(await self._act(client, stages, note, traffic, task))
        best = max(acts, key=lambda act: act.flow.throughput_fps)
        acts.append(await self._act(client, best.stages, f"the best, as in epoch {best.epoch}", traffic, task))
        return acts

    async def _act(
        self, client: Any, stages: Stages | None, note: str, traffic: Traffic, task: asyncio.Task[None]
    ) -> _Act:
        """Make a plan live (None: leave the one that is), let it run, and tell how it did."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()  # the same clock as time.monotonic()
        if stages is not None:
            end = await client.set_plan(stages)
            if end["outcome"] != "live":
                raise Failure(f"a plan was {end['outcome']}: {end['reason']}")
        await asyncio.wait({task}, timeout=self._seconds)
        if task.done():
            task.result()  # raises what went wrong
        plan = await client.plan()
        flow = traffic.flow(plan["epoch"], asked_s)
        times_s = [stage["service_s"] for stage in plan["stages"]]
        if flow is None or None in times_s:
            raise Failure(f"too few answers in {self._seconds:g} s to measure a plan; try a longer --seconds")
        act = _Act(plan["epoch"], note, plan["stages"], max(times_s), flow)
        self._say(self._row(act))
        return act

    # --- telling ----------------------------------------------------------------------------------------------

    def _open(self, seed: Stages) -> None:
        weights = [layer.weight for layer in self._compiled.layers]
        whole = sum(weights)
        boxes = []
        for stage in seed:
            share = sum(weights[stage["first"] : stage["last"] + 1]) / whole
            boxes.append(Box(stage["places"][0], span(stage["first"], stage["last"]), f"{share:5.1%}", share))
        self._say(
            f"The seed: {len(weights)} layers cut where their weights balance (Shisha, Algorithm 1), nothing measured "
            f"yet.\n\n{draw(boxes, self._width)}\n\n"
            f"The daemon (pid {self._daemon.pid}) serves at {self._daemon.endpoint}.\n"
            "Frames flow without a pause from here on, and the cut moves a few layers each way: a walk made by hand,\n"
            f"with the daemon's own tuner off. Each plan is measured for {self._seconds:g} s.\n\n"
            f"epoch  {'stages, a mark a layer':<{self._ribbon_width}}  frames/s  slowest stage     gap at change"
        )

    @property
    def _ribbon_width(self) -> int:
        return min(32, len(self._compiled.layers))

    def _row(self, act: _Act) -> str:
        marks = ribbon([stage["last"] - stage["first"] + 1 for stage in act.stages], self._ribbon_width)
        slowest = max(act.stages, key=lambda stage: float(stage["service_s"]))
        where = f"{slowest['places'][0]} {milliseconds(act.slowest_s)}"
        gap = milliseconds(act.flow.change_gap_s) if act.flow.change_gap_s else ""
        return f"{act.epoch:5}  {marks}  {act.flow.throughput_fps:8.0f}  {where:<16} {gap:>14}  {act.note}"

    def _close(self, acts: Sequence[_Act], traffic: Traffic, page: str) -> dict[str, Any]:
        first, last = acts[0], acts[-1]
        lost = traffic.sent - traffic.answered - len(traffic.errors)
        faults = _faults(traffic, lost)
        change_gap_s = max(act.flow.change_gap_s for act in acts)
        other_gap_s = max(act.flow.longest_gap_s for act in acts)
        ratio = last.flow.throughput_fps / first.flow.throughput_fps
        sample = [line for line in page.splitlines() if line.split("{")[0].split(" ")[0] in _SAMPLE]
        name = sys.argv[0] if Path(sys.argv[0]).name == "shisha-rt" else "shisha-rt"
        verdict = "; ".join(faults) or "none lost, all in order, every result as under the seed"
        self._say(
            f"\nThe last plan, with the time that each stage takes for a frame:\n\n"
            f"{draw(stage_boxes(last.stages), self._width)}\n\n"
            f"frames      {traffic.sent} sent, {traffic.answered} answered: {verdict}\n"
            f"throughput  {first.flow.throughput_fps:.0f} frames/s with the seed, {last.flow.throughput_fps:.0f} with "
            f"the last plan ({ratio:.2f} times)\n"
            f"gaps        longest between two answers: {milliseconds(change_gap_s)} at a change of plan, "
            f"{milliseconds(other_gap_s)} at other times\n"
            f"epochs      {first.epoch} to {last.epoch}, {len(acts) - 1} changes under load\n"
            f"metrics     {self._daemon.metrics} said, among others:\n"
            + "".join(f"              {line}\n" for line in sample)
            + "\nNext, with a model of your own in place of zoo:squeezenet:\n"
            f"  {name} serve zoo:squeezenet         # stays; then, from another terminal:\n"
            f"  {name} submit --frames 1000         # send frames, see throughput and latency\n"
            f"  {name} status                       # see the pipeline\n"
            f"  {name} layers zoo:squeezenet        # see what a pipeline can move"
        )
        return {
            "model": self._compiled.model.name,
            "sent": traffic.sent,
            "answered": traffic.answered,
            "lost": lost,
            "out_of_order": traffic.out_of_order,
            "different": traffic.different,
            "errors": len(traffic.errors),
            "faults": faults,
            "change_gap_s": change_gap_s,
            "other_gap_s": other_gap_s,
            "plans": [
                {
                    "epoch": act.epoch,
                    "note": act.note,
                    "stages": act.stages,
                    "bottleneck_s": act.slowest_s,
                    **asdict(act.flow),
                }
                for act in acts
            ],
            "metrics": sample,
        }


def _faults(traffic: Traffic, lost: int) -> list[str]:
    faults = [
        (lost, "lost"),
        (traffic.out_of_order, "out of order"),
        (traffic.different, "with another result than under the seed"),
        (len(traffic.errors), f"ended in an error, the first: {traffic.errors[0].message if traffic.errors else ''}"),
    ]
    return [f"{count} {what}" for count, what in faults if count]


def moved_cuts(stages: Sequence[Mapping[str, Any]], legal_cuts: frozenset[int]) -> list[tuple[str, Stages]]:
    """The cut between the slowest stage and its faster neighbour, moved a few layers each way, with a note for each."""
    times_s = [stage["service_s"] for stage in stages]
    slowest = times_s.index(max(times_s))
    neighbours = [i for i in (slowest - 1, slowest + 1) if 0 <= i < len(stages)]
    if not neighbours:
        return []
    left = min(slowest, min(neighbours, key=lambda i: float(times_s[i])))
    cut, low, high = stages[left]["last"], stages[left]["first"], stages[left + 1]["last"]
    plans = []
    for step in _STEPS:
        to = cut + step * _LAYERS_PER_STEP
        if low <= to < high and to in legal_cuts:
            plan = [{key: stage[key] for key in ("first", "last", "places")} for stage in stages]
            plan[left]["last"], plan[left + 1]["first"] = to, to + 1
            plans.append((f"the cut {abs(to - cut)} layers {'earlier' if to < cut else 'later'}", plan))
    return plans


def _page(url: str) -> str:
    """The metrics page, from this machine itself: no proxy that the environment may name is asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as page:
        content: bytes = page.read()
    return content.decode()
