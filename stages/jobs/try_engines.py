"""`python -m stages.jobs.try_engines JOB_JSON`: run a whole network on each engine, compare the answers, time the runs.

Each engine is in a process of its own (`one_engine`), as it may crash on the network or never finish. All get the same
made-up frames, and their answers are compared with ONNX Runtime's. Engines whose answers agree then take turns, round
after round, so that a drift of the host hits all alike, and medians are taken. In a turn a short run is repeated, after
one that is not timed: when places serve copies of a network, its weights are in the caches as far as they fit.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from shisha_rt.costs.agreement import how_far_apart
from shisha_rt.costs.engine_trials import BatchTime, EnginesTried, EngineTime, EngineTrial, further_apart, why_not
from shisha_rt.errors import Failure
from shisha_rt.messages import try_engines as te
from shisha_rt.messages.calibration import Progress, Rounds
from shisha_rt.model.index import ModelIndex, made_outputs
from shisha_rt.model.reader import index_file
from shisha_rt.plan.engine import DEFAULT_ENGINE
from shisha_rt.process.channel import ChannelBroken
from shisha_rt.process.child import last_line, start_with_channel
from shisha_rt.process.job import how_ended
from shisha_rt.process.readable import is_readable
from shisha_rt.tensors import NUMPY_OF
from stages.engines.session import Array
from stages.jobs.calibrate import Waiting, cpu_use, run_rounds, say
from stages.jobs.neighbour import neighbours
from stages.noise import moved, run_on_frame

STARTS_CHILDREN: Final = True
"""A process of this module has a fork server of its own: see `process/fork_server.py`."""
_FRAMES: Final = 3
_TURN_S: Final = 0.02
_MOST_BUDGETS: Final = 2
"""The minimum of rounds may take so many times the budget; for a large network the minimum is lowered."""
_LEAST_ROUNDS: Final = 2
_LIMIT_S: Final = 240.0
"""For each request to an engine: this job counts as hung after a little longer."""

Arrays: TypeAlias = dict[str, Array]
AnswerT = TypeVar("AnswerT")


def main(arguments: list[str]) -> int:
    job = msgspec.json.decode(arguments[0], type=te.EnginesJob)
    with neighbours(job.folders[0][1], job.neighbours):
        tried = try_engines(job, tell=say)
    say(tried)
    return 0


def try_engines(job: te.EnginesJob, tell: Callable[[Progress], None]) -> EnginesTried:
    """Try the job's engines. Raises Failure if ONNX Runtime does not run the network."""
    shapes = [index_file.read_index(Path(engine_folder)) for _, engine_folder in job.folders]
    with contextlib.ExitStack() as ending:
        networks = [_Network(EngineTrial(*names, runs=True), job, shapes, ending) for names in job.engines.items()]
        right, *others = networks
        for shape, index in enumerate(shapes):
            for seed in range(_FRAMES):
                if why_not(right.trial):
                    raise Failure(right.trial.reason)
                frame = _frame(right, shape, index, seed)
                for other in others:
                    other.compare(shape, *frame)
        for other in others:
            other.expect_compared()
        before = cpu_use(job)
        _time([network for network in networks if not why_not(network.trial)], len(shapes), job, tell)
        return EnginesTried(tuple(network.trial for network in networks), cpu_use(job).others_ratio(before))


class _Lost(Exception):
    """The engine's process has died."""


class _Hung(_Lost):
    """The engine's process was killed, as it did not answer in time."""


class _Refused(Exception):
    """The engine raised an error."""


class _Network:
    """A network on one engine, in a process of its own, and the results of its trial."""

    def __init__(
        self, trial: EngineTrial, job: te.EnginesJob, shapes: Sequence[ModelIndex], ending: contextlib.ExitStack
    ) -> None:
        """Build the network. `ending` ends the process."""
        self.trial = trial
        self.run_s = 0.0
        self.waited_s = 0.0
        self._threads = job.threads
        self._times_s: list[list[tuple[float, float]]] = [[] for _ in shapes]
        self.batch = job.batch
        self._together_s: list[float] = []
        self._together_bytes = 0
        self._has_batches = False  # if so, its process has networks for batches, too
        depending = next((spec.name for index in shapes for spec in index.outputs if spec.open_axes), None)
        if depending is not None and trial.engine != DEFAULT_ENGINE:
            self._leave_out(f"the shape of output {depending!r} depends on the data")
            return
        self._ending = ending
        self._asked = te.BuildEngine(trial.engine, job)
        self._build()

    def _build(self) -> None:
        self._process = self._ending.enter_context(contextlib.closing(_Process()))
        with self._outcome():
            self.trial = replace(self.trial, build_s=self._process.ask(self._asked, te.EngineBuilt).build_s)

    def compute(self, shape: int, inputs: Arrays) -> dict[str, bytes]:
        """Outputs by name. Raises _Lost and _Refused."""
        start_s = time.perf_counter()
        frame = te.ComputeFrame(shape, {name: array.tobytes() for name, array in inputs.items()})
        outputs = self._process.ask(frame, te.FrameComputed).outputs
        self.run_s = time.perf_counter() - start_s
        return outputs

    def compare(self, shape: int, inputs: Arrays, expected: Arrays, near: Arrays) -> None:
        if why_not(self.trial):
            return
        with self._outcome():
            outputs = self.compute(shape, inputs)
            try:
                self.trial = further_apart(self.trial, *how_far_apart(_arrays(outputs, expected), expected, near))
            except ValueError as error:
                self.trial = replace(self.trial, reason=str(error))

    def expect_compared(self) -> None:
        """Leave the engine out if no frame had an answer to compare, as where all answers are nan: it may be wrong."""
        if not why_not(self.trial) and self.trial.difference is None and self.trial.unlike is None:
            self.trial = replace(self.trial, reason="ONNX Runtime's answers to made-up frames have nothing to compare")

    def turn(self, shape: int) -> None:
        if why_not(self.trial):
            return
        with self._outcome():
            timed = self._process.ask(te.TimeFrames(shape, _TURN_S), te.FramesTimed)
            self._times_s[shape] += zip(timed.wall_s, timed.cpu_s, strict=True)
            self.waited_s += timed.waited_s
            if not self._has_batches:
                self.trial = replace(self.trial, private_bytes=timed.private_bytes)

    def turn_of_many(self) -> None:
        """Time some batches in the first shape; if the engine cannot compute them, stop timing batches.

        A process that dies of batches, for example for lack of memory, is replaced by one for single frames. One that
        hangs is not: a second one that hangs would outlast this job's own limit.
        """
        if why_not(self.trial) or self.batch == 1:
            return
        self._has_batches = True
        try:
            timed = self._process.ask(te.TimeFrames(0, _TURN_S, together=True), te.FramesTimed)
            more_bytes = max(0, timed.private_bytes - self.trial.private_bytes)
            self._together_bytes = self.trial.private_bytes + len(self._times_s) * more_bytes
            self._together_s += timed.cpu_s
        except _Refused:
            self.batch = 1
        except _Hung as error:
            self._leave_out(str(error))
        except _Lost:
            self.batch = 1
            self._build()

    def take_times(self) -> None:
        """Store the times in the trial: the mean over the shapes of each shape's median."""
        if all(self._times_s) and not why_not(self.trial):
            medians_s = [
                [statistics.median(clock) for clock in zip(*times_s, strict=True)] for times_s in self._times_s
            ]
            wall_s, cpu_s = (statistics.fmean(clock) for clock in zip(*medians_s, strict=True))
            times = EngineTime(self._threads, wall_s, cpu_s, min(map(len, self._times_s)))
            self.trial = replace(self.trial, times=(times,))
            if self.batch > 1 and self._together_s:
                frame_s = statistics.median(self._together_s) / self.batch
                single_s = statistics.median(cpu_s for _, cpu_s in self._times_s[0])
                batch_time = BatchTime(self.batch, frame_s, single_s, self._together_bytes)
                self.trial = replace(self.trial, batch_times=(batch_time,))

    @contextlib.contextmanager
    def _outcome(self) -> Iterator[None]:
        """Note in the trial if the engine fails in this context."""
        try:
            yield
        except (_Lost, _Refused) as error:
            self._leave_out(str(error))

    def _leave_out(self, reason: str) -> None:
        self.trial = replace(self.trial, runs=False, reason=reason)


def _arrays(outputs: dict[str, bytes], like: Arrays) -> Arrays:
    return {name: np.frombuffer(outputs[name], array.dtype).reshape(array.shape) for name, array in like.items()}


def _frame(right: _Network, shape: int, index: ModelIndex, seed: int) -> tuple[Arrays, Arrays, Arrays]:
    """Made-up inputs, ONNX Runtime's outputs, and those for perturbed inputs. Raises Failure if it runs on none."""
    closed = [spec for spec in made_outputs(index) if not spec.open_axes]
    like = {spec.name: np.empty(spec.shape, NUMPY_OF[spec.datatype]) for spec in closed}

    def run(inputs: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        expected, near = (_arrays(right.compute(shape, values), like) for values in (inputs, moved(inputs)))
        return inputs, expected, near

    try:
        return run_on_frame(run, index.inputs, seed)
    except (_Lost, _Refused) as error:
        raise Failure(str(error)) from error


def _time(networks: Sequence[_Network], shape_count: int, job: te.EnginesJob, tell: Callable[[Progress], None]) -> None:
    """Have all networks take turns. No times are stored if the measurement is given up, as threads had to wait."""
    singles = (partial(network.turn, shape) for shape in range(shape_count) for network in networks)
    turns: list[Callable[[], None]] = [*singles, *(network.turn_of_many for network in networks)]
    round_s = sum((shape_count + network.batch - 1) * network.run_s for network in networks)
    fewest = int(_MOST_BUDGETS * job.budget_s / round_s)
    rounds = Rounds(
        budget_s=job.budget_s,
        min_rounds=max(_LEAST_ROUNDS, min(job.min_rounds, fewest)),
        max_rounds=job.max_rounds,
    )
    waiting = Waiting(lambda: sum(network.waited_s for network in networks)) if job.undisturbed else None
    if run_rounds(turns, rounds, tell, waiting):
        for network in networks:
            network.take_times()


class _Process:
    """A process of `one_engine`, and the line to it. `limit_s`: for each answer; then the process counts as hung."""

    def __init__(self) -> None:
        self.limit_s = _LIMIT_S
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._child, self._channel = start_with_channel("stages.jobs.one_engine", stderr=self._said)

    def ask(self, message: te.ToEngine, answer: type[AnswerT]) -> AnswerT:
        """Send a message and wait for its answer. Raises _Lost and _Refused."""
        end_s = time.monotonic() + self.limit_s
        with contextlib.suppress(ChannelBroken):  # then no answer comes either
            self._channel.send(te.TO_ENGINE.encode(message))
        while (data := self._channel.take()) is None:
            if not self._channel.open:
                raise _Lost(self._how_it_ended())
            if not is_readable(self._channel.fileno(), end_s - time.monotonic()):
                self._child.kill()
                raise _Hung(how_ended(None))
        match te.FROM_ENGINE.decode(data):
            case te.EngineRefuses(reason):
                raise _Refused(reason)
            case said:
                assert isinstance(said, answer)
                return said

    def _how_it_ended(self) -> str:
        status = self._child.wait()
        return how_ended(status) if status < 0 else last_line(self._said) or how_ended(status)

    def close(self) -> None:
        self._child.end()
        self._channel.close()
        self._said.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
