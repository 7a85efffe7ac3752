"""`python -m stages.jobs.one_engine CHANNEL PARENT`: run a whole network on one engine, on requests of `try_engines`.

The network is built as a worker builds it, and bound to a slot of a private arena. If the engine crashes on it, only
this process dies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from shisha_rt.messages import try_engines as te
from shisha_rt.model.index import made_outputs
from shisha_rt.model.reader import index_file
from shisha_rt.plan.engine import DEFAULT_ENGINE
from shisha_rt.process.arena import Arena
from shisha_rt.process.channel import OtherEndGone
from shisha_rt.process.layout import layouts_of
from shisha_rt.process.parent import die_before_others, line_to_parent
from stages.built.batched import BatchedStage, Together
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.openvino.whole import WholeOnOpenVino
from stages.engines.session import EngineSession, untimed
from stages.jobs.calibrate import stand, threads_of, threads_waited_s
from stages.memory_limit import MOST_SCORE, private_bytes

_SLOT: Final = 0
_LONG_S: Final = 0.1
"""From this length on, a run finds hardly anything of the run before it in the caches, so even the first one counts."""
_MOST_SAID: Final = 200


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    die_before_others(MOST_SCORE)
    asked = te.TO_ENGINE.decode(channel.wait())
    assert isinstance(asked, te.BuildEngine)
    try:
        engine = _Engine(asked)
    except Exception as error:  # any error means that the engine does not run the network
        channel.send(te.FROM_ENGINE.encode(te.EngineRefuses(_in_a_line(error))))
        channel.wait()  # until this process is ended
        return 0
    answer: te.FromEngine = engine.built
    while True:
        channel.send(te.FROM_ENGINE.encode(answer))
        try:
            answer = engine.handle(te.TO_ENGINE.decode(channel.wait()))
        except OtherEndGone:
            return 0
        except Exception as error:  # an error of this request
            answer = te.EngineRefuses(_in_a_line(error))


class _Engine:
    """The network in each of its shapes."""

    def __init__(self, asked: te.BuildEngine) -> None:
        """Raises whatever the engine raises."""
        stand(asked.job, [asked.engine])
        self._before_bytes, started_s = private_bytes(), time.monotonic()
        self._shapes = [_Shape(asked, *map(Path, folders)) for folders in asked.job.folders]
        self.built = te.EngineBuilt(time.monotonic() - started_s)

    def handle(self, asked: te.ToEngine) -> te.FromEngine:
        match asked:
            case te.ComputeFrame(shape, inputs):
                return te.FrameComputed(self._shapes[shape].compute(inputs))
            case te.TimeFrames(shape, least_s, together):
                network = self._shapes[shape]
                return self._timed(network.runs_together() if together else network.run, least_s)
        raise ValueError("it is built already")

    def _timed(self, run: Callable[[], object], least_s: float) -> te.FramesTimed:
        waited_s, start_s = threads_waited_s(), time.perf_counter()
        times_s = [_timed(run)]
        if times_s[0][0] < _LONG_S:
            times_s.clear()
        while not times_s or time.perf_counter() - start_s < least_s:
            times_s.append(_timed(run))
        wall_s, cpu_s = zip(*times_s, strict=True)
        waited_s = threads_waited_s() - waited_s
        return te.FramesTimed(wall_s, cpu_s, waited_s, max(0, private_bytes() - self._before_bytes))


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall seconds and CPU seconds of a run; nothing else runs in this process."""
    cpu_start_s, wall_start_s = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - wall_start_s, time.process_time() - cpu_start_s


class _Shape:
    """The network in one shape."""

    def __init__(self, asked: te.BuildEngine, model_folder: Path, engine_folder: Path) -> None:
        index = index_file.read_index(engine_folder)
        self._slots = range(asked.job.batch)
        self._arena = Arena.create(layouts_of([index.tensors]), slot_count=asked.job.batch, place_count=1)
        self._outputs = [spec.name for spec in made_outputs(index) if not spec.open_axes]
        threads = threads_of(asked.job)
        whole: EngineSession
        if asked.engine == DEFAULT_ENGINE:
            work, model = ((0, index.layer_count - 1),), OptimisedModel(engine_folder, index)
            whole = segment = model.segment(work, threads)

            def together() -> Together:
                many = model.segment(work, threads, index.batch_axes)
                return Together(segment, index.batch_axes, {asked.job.batch: many})
        else:
            whole = network = WholeOnOpenVino(model_folder, index, threads, 0, asked.engine)

            def together() -> Together:
                return Together(network, index.batch_axes, network.of_frames(asked.job.batch), network.precision)

        self._together = together
        self._many: BatchedStage | None = None
        self.run = partial(whole.on_slot(self._arena, _SLOT), untimed)

    def compute(self, inputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Outputs for these inputs, by name. Raises whatever the engine raises."""
        for name, value in inputs.items():
            for slot in self._slots:
                self._arena.write(slot, self._arena.layout.regions[name], memoryview(value))
        self.run()
        return {name: self._arena.read(_SLOT, self._arena.layout.regions[name]) for name in self._outputs}

    def runs_together(self) -> Callable[[], object]:
        """Compute the slots as a batch, built at the first call. Raises FramesDiffer if batches change answers."""
        if self._many is None:
            many = BatchedStage([self._together()])
            many.try_out()
            self._many = many
        return partial(self._many.run_together, self._arena, self._slots, untimed)


def _in_a_line(error: Exception) -> str:
    """The message as one line, without bullets and the positions in OpenVINO's sources with which its messages begin.

    Of a long message its last line, which says the cause.
    """
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("Exception from", "Check '"))] or [repr(error)]
    message = " ".join(said)
    return message if len(message) <= _MOST_SAID else said[-1][:_MOST_SAID]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
