"""The daemon's helpers beside its loop: processes that tune, place, profile and compare, and a thread."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from shisha_rt.core import event_log
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.costs.links import HostLink
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.planning import plans_file
from shisha_rt.daemon.prepared import PreparedModel
from shisha_rt.errors import Failure
from shisha_rt.measure import plan_store
from shisha_rt.messages import shadow as sm
from shisha_rt.model.index import ModelIndex
from shisha_rt.plan.plan import team_name
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.tensors import Tensor

log = logging.getLogger(__name__)

_TUNER: Final = ChildProgram("shisha_rt.daemon.children.tuner", tm.TO_TUNER, tm.FROM_TUNER)
_PLACER: Final = ChildProgram("shisha_rt.daemon.children.placer", pm.TO_PLACER, pm.FROM_PLACER)
_PROFILER: Final = ChildProgram("shisha_rt.daemon.children.profiler", fm.TO_PROFILER, fm.FROM_PROFILER)
_SHADOW: Final = ChildProgram("shisha_rt.daemon.children.shadow", sm.TO_SHADOW, sm.FROM_SHADOW)
_MOST_PROFILERS: Final = 3
"""After so many deaths of its process, profiling is given up."""
_WRITING_S: Final = 5.0
"""How long the daemon waits at its end for plans to be written."""


class Children:
    """Without a strategy that searches there is no tuner, and without devices no placer."""

    def __init__(self, poller: Poller, prepared: PreparedModel, arena: Arena) -> None:
        ready, planning = prepared.ready, prepared.planning
        self.plan_writer = PlanWriter(None if planning.fresh else plans_file(), ready.compiled.key)
        self.shadow = ShadowLink(poller, arena, [shape.index for shape in ready.compiled.each])
        self._ready = ready
        self.tuner = ChildLink(_TUNER, poller, ev.TunerDied, ev.TunerSaid)
        self.placer = ChildLink(_PLACER, poller, ev.PlacerDied, ev.PlacerSaid)
        self.profiler = ChildLink(_PROFILER, poller, self._profiler_died, self._profiler_said)
        self._all: tuple[ChildLink[Any, Any], ...] = self.tuner, self.placer, self.profiler
        self._profilers_died = 0
        self._profiled = False
        self._waits_since_s: float | None = None
        if planning.settings.strategy != "seed":
            self.tuner.start_later(prepared.told_first)
        if ready.operator_costs:
            folders = str(ready.compiled.model_folder), str(ready.compiled.engine_folder)
            teams = {team_name(team): costs for team, costs in ready.team_costs.items()}
            try:
                costs, paces = {**ready.operator_costs, **teams}, ready.machine.timing == "modelled"
                self.placer.start(pm.greeting(*folders, planning.settings.solver, costs, paces=paces))
            except OSError:
                self.close()
                raise

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._all if child.pid is not None]

    @property
    def profiling(self) -> bool:
        """Whether layers are being measured, on places that are up."""
        return self.profiler.on and not self._profiled

    @property
    def profiler_waits_s(self) -> float | None:
        """How long the profiler has waited, as another process measures on this host; None: it does not."""
        return None if self._waits_since_s is None else time.monotonic() - self._waits_since_s

    def profile(
        self, far: Mapping[str, HostLink], down: Collection[str], choice: Choice, *, renew: bool = False
    ) -> Iterator[object]:
        """Start, or restart, the profiler: it measures layer costs, and plans by these and the links `far`.

        Yields an event if no process can be started. Nothing is measured on places that are `down`. If plans may use
        several engines, these are tried on the whole network first. `renew`: measure again what is known but was
        measured while other programs used the cores.
        """
        self._profiled, self._profilers_died, self._waits_since_s = False, 0, None
        compiled, machine = self._ready.compiled, self._ready.machine
        asked = fm.ProfileModel(
            compiled.model.name,
            tuple((str(shape.model_folder), str(shape.engine_folder)) for shape in compiled.each),
            self._ready.teams,
            choice.replicate,
            replace(machine, spare=machine.spare.union(down)),
            dict(self._ready.remote),
            dict(far),
            renew,
            choice.tries_engines,
            self._ready.precision,
            choice.most_batch,
            choice.most_run_s,
            choice.latency_s,
        )
        try:
            self.profiler.start_soon([asked])
        except OSError as error:
            yield ev.ProfilerSaid(fm.NotProfiled(f"no process could be started for it: {error.strerror}"))

    def _profiler_said(self, message: fm.FromProfiler | fm.AnotherMeasures) -> object:
        if isinstance(message, fm.AnotherMeasures):
            self._waits_since_s = time.monotonic() if message.seconds is None else None
            return event_log.ProfilerWaits(seconds=message.seconds)
        self._profiled = not isinstance(message, fm.EnginesCompared)
        return ev.ProfilerSaid(message)

    def _profiler_died(self, reason: str) -> object:
        self._profilers_died += 1
        self._waits_since_s = None
        if self._profilers_died < _MOST_PROFILERS:
            return event_log.ProfilerEnded(reason=reason)
        return self._profiler_said(fm.NotProfiled(f"its process died {self._profilers_died} times: {reason}"))

    def tell_tuner(self, message: tm.ToTuner) -> None:
        if isinstance(message, tm.StoredCosts):
            self.tuner.greet(message)
        else:
            self.tuner.send(message)

    def look(self) -> None:
        """Called periodically."""
        for child in self._all:
            child.look()
        self.shadow.look()
        if self._profiled:  # it has no more to do
            self.profiler.stop()

    def close(self) -> None:
        for child in self._all:
            child.close()
        self.shadow.close()
        self.plan_writer.close()


class ShadowLink:
    """Link to the process that compares answers with another version's. No process runs before `begin`.

    `wants_frame`: call `show` for the next frame that is computed.
    """

    def __init__(self, poller: Poller, arena: Arena, indexes: Sequence[ModelIndex]) -> None:
        self.wants_frame = False
        self._arena = arena
        self._indexes = indexes
        self._link = ChildLink(_SHADOW, poller, self._died, self._said)
        self._over = False
        self._then: Callable[[sm.ShadowEnds], None] = lambda _: None

    @property
    def runs(self) -> bool:
        """Whether a comparison has no result yet."""
        return self._link.on and not self._over

    def begin(self, endpoint: str, frames: int, then: Callable[[sm.ShadowEnds], None]) -> None:
        """Start a comparison; `then` is called once, with its result. Raises OSError if no descriptor is available."""
        self._link.start_soon([sm.ShadowBegins(endpoint, frames)])
        self._then, self._over = then, False

    def show(self, slot: int, layout: int) -> None:
        """Send a copy of a frame's inputs and outputs, which are in its slot until that is filled again.

        A frame with an output too large for its buffer is skipped: it has no answer to compare.
        """
        index = self._indexes[layout]
        try:
            inputs, outputs = (self._tensors(slot, layout, specs) for specs in (index.inputs, index.outputs))
        except NoRoom:
            return
        self.wants_frame = False
        self._link.send(sm.ShadowFrame(inputs, outputs))

    def _tensors(self, slot: int, layout: int, specs: Iterable[Tensor]) -> dict[str, sm.ShadowTensor]:
        arena, regions = self._arena, self._arena.layouts[layout].regions
        return {
            spec.name: sm.ShadowTensor(
                spec.datatype, arena.shape(slot, regions[spec.name]), arena.read(slot, regions[spec.name])
            )
            for spec in specs
        }

    def _said(self, message: sm.FromShadow) -> sm.FromShadow:
        self.wants_frame = isinstance(message, sm.NextFrame) and not self._over
        return message

    def _died(self, reason: str) -> sm.ShadowEnds:
        return sm.ShadowEnds(0, 0, 0, 0.0, 0.0, f"the process that compares ended: {reason}")

    def ended(self, ends: sm.ShadowEnds) -> None:
        """Pass on the result, once: after a death another process runs for a moment, and may send a result, too."""
        if not self._over:
            self._over, self.wants_frame = True, False
            self._then(ends)

    def look(self) -> None:
        """Called periodically: end the process if it hangs, or has no more to do."""
        if self._over:
            self.wants_frame = False
            self._link.stop()
        self._link.look()

    def close(self) -> None:
        self.wants_frame = False
        self._link.close()


class PlanWriter:
    """Writes a model's best plans to disk, in a thread: the loop never waits for locks. Without a path: nowhere."""

    def __init__(self, path: Path | None, model_key: str) -> None:
        self._path = path
        self._model_key = model_key
        self._wanted: queue.SimpleQueue[tuple[str, BestPlan] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="plan_writer", daemon=True)
        self._thread.start()

    def keep(self, key: str, best: BestPlan) -> None:
        if self._path is not None:
            self._wanted.put((key, best))

    def close(self) -> None:
        """Wait, for a limited time, until pending plans are written."""
        self._wanted.put(None)
        self._thread.join(_WRITING_S)

    def _write(self) -> None:
        """Write plans as they come. A plan that cannot be written is dropped, as tuning finds it again."""
        said = ""
        while (wanted := self._wanted.get()) is not None:
            assert self._path is not None
            try:
                plan_store.save_plan(self._path, self._model_key, *wanted)
            except Failure as failure:
                if str(failure) != said:
                    log.warning("%s; the best plan is not kept", failure)
                said = str(failure)
