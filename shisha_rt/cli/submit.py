"""`shisha-rt submit`: send frames to a daemon, and report throughput, latency and errors."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import sys
import time
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shisha_rt.cli.options import DaemonOptions, Json, check_writable, takes
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_NAME_LENGTH, MAX_PRIORITY
from shisha_rt.whole_file import whole_file

if TYPE_CHECKING:
    from rich.progress import Progress

    from shisha_rt.array_file import Array, Content
    from shisha_rt.cli.drive.frames import Frame
    from shisha_rt.client import Answer, AsyncStream, ShishaError
    from shisha_rt.model.graph import Tensor

_FRAMES: Final = 100
_MOST_FRAMES: Final = 10**15
"""More would take a thousand years at a million a second: a mistake, and beyond what iterators count."""
_LEAST_RATE_FPS: Final = 1e-5
"""About a frame a day. A lower rate is a mistake, and its sleeps may overflow the clock."""
_RANDOM_FRAMES: Final = 8  # made beforehand and sent in turn: making them takes longer than running them
_SHOW_AFTER_S: Final = 2.0
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class SubmitOptions(DaemonOptions):
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=_MOST_FRAMES, help="How many. Default: 100, or each frame of the inputs once."
        ),
    ] = None
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE", help="A .npy or .npz file; repeatable. Default: random."),
    ] = None
    rate: Annotated[
        float | None, typer.Option(metavar="FPS", help="Send so many per second. Default: as fast as they go.")
    ] = None
    in_flight: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many with the daemon at once.")] = 8
    stream: Annotated[str | None, typer.Option(metavar="NAME", help="The stream's name, for logs.")] = None
    deadline_ms: Annotated[
        float | None,
        typer.Option(metavar="D", min=0, max=MAX_DEADLINE_MS, help="The daemon gives a frame up after D milliseconds."),
    ] = None
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=MAX_PRIORITY, help="1: the most urgent, to 9; 0: the usual, 5.")
    ] = 0
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Save the outputs, stacked by frame if their shape is fixed."),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Start of the random generator.")] = 0
    as_json: Json = False


@takes(SubmitOptions)
def submit(options: SubmitOptions) -> None:
    """Send frames to a running daemon as one ordered stream.

    Ends with the throughput, percentiles of the latency as this client saw it, and how the frames ended; Ctrl-C ends
    it early. With --rate a frame's latency counts from the moment it was due.

    A .npy file serves a model of one input; an .npz file holds one array for each input, by name. Where an array has
    one axis more than the input, each entry along the first is a frame. Several files are sent in turn.

    In the file of --output each output has its name, and its frames along the first axis: the batch axis, or one more
    where there is none, or where a file has one more. An output whose shape may vary has an array
    NAME[FRAME] for each frame that was answered, counted from 0.

    \b
    Examples:
      shisha-rt submit --frames 1000
      shisha-rt submit --input images.npy --output answers.npz
      shisha-rt submit --rate 200 --deadline-ms 50 --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.array_file import read_arrays
    from shisha_rt.cli.drive.reach import on_random

    if options.rate is not None and not _LEAST_RATE_FPS <= options.rate < math.inf:
        raise BadInput(f"--rate {options.rate:g}: expected a number from {_LEAST_RATE_FPS:g}", Error.WRONG_OPTION)
    if options.stream is not None and not 1 <= len(options.stream) <= MAX_NAME_LENGTH:
        raise BadInput(f"--stream: expected a name of 1 to {MAX_NAME_LENGTH} characters", Error.WRONG_OPTION)
    if options.output is not None and options.output.suffix != ".npz":
        raise BadInput(f"--output {options.output}: expected a name that ends in .npz", Error.WRONG_OPTION)
    check_writable("--output", options.output)
    contents = [(path, read_arrays(path)) for path in options.inputs or ()]
    tally = Tally(keep_outputs=options.output is not None)
    interrupted = False
    try:
        asyncio.run(_run(options, contents, tally))
    except KeyboardInterrupt:
        interrupted = True
    if interrupted and tally.model is None:
        raise KeyboardInterrupt
    if options.output is not None and tally.outputs:
        save(options.output, tally.arrays())
    print(json.dumps(tally.as_object()) if options.as_json else tally.in_words(options.output))
    if interrupted:
        raise KeyboardInterrupt
    if tally.first_error is not None:
        index, error = tally.first_error
        counts = f"{tally.failed} of {tally.sent} frames failed; the first was frame {index}: "
        cause = f"{error.code}: {error.message}{'' if contents else on_random(error)}"
        raise Failure(f"{counts if tally.sent > 1 else ''}{cause}", error.kind, printed=True)


@dataclass(slots=True)
class Tally:
    """Results of the frames so far. All times are of one monotonic clock; latencies only of frames with a result.

    `open_outputs`: names of outputs whose shape may differ between frames. `along_batch`: frames lie along the inputs'
    batch axis, so outputs are saved along theirs.
    """

    keep_outputs: bool = False
    model: str | None = None
    open_outputs: frozenset[str] = frozenset()
    along_batch: bool = False
    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    epochs: Counter[int] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    failed_frames: list[int] = field(default_factory=list)
    first_error: tuple[int, ShishaError] | None = None
    outputs: dict[str, dict[int, Array]] = field(default_factory=dict)
    started_s: float = 0.0
    ended_s: float = 0.0

    @property
    def completed(self) -> int:
        return len(self.latencies_s)

    @property
    def failed(self) -> int:
        return len(self.failed_frames)

    @property
    def elapsed_s(self) -> float:
        return max(0.0, self.ended_s - self.started_s)

    @property
    def throughput_fps(self) -> float | None:
        return self.completed / self.elapsed_s if self.elapsed_s else None

    def quantiles_s(self) -> dict[str, float | None]:
        import numpy as np

        if not self.latencies_s:
            return dict.fromkeys(_QUANTILES)
        quantiles_s = np.quantile(self.latencies_s, list(_QUANTILES.values())).tolist()
        return dict(zip(_QUANTILES, quantiles_s, strict=True))

    def add_answer(self, index: int, answer: Answer, latency_s: float) -> None:
        self.outcomes["OK"] += 1
        self.epochs[answer.epoch] += 1
        self.latencies_s.append(latency_s)
        if self.keep_outputs:
            for name, array in answer.outputs.items():
                self.outputs.setdefault(name, {})[index] = array

    def arrays(self) -> dict[str, Array]:
        """The outputs by name, stacked by frame; an output whose shape may differ is `NAME[FRAME]` for each frame."""
        import numpy as np

        outputs: dict[str, Array] = {}
        for name, arrays in self.outputs.items():
            if name in self.open_outputs:
                outputs |= {f"{name}[{index}]": array for index, array in arrays.items()}
            else:
                first = next(iter(arrays.values()))
                along = self.along_batch and first.shape[:1] == (1,)
                outputs[name] = (np.concatenate if along else np.stack)(list(arrays.values()))
        return outputs

    def add_error(self, index: int, error: ShishaError) -> None:
        self.outcomes[error.code.value] += 1
        self.failed_frames.append(index)
        self.first_error = self.first_error or (index, error)

    def as_object(self) -> dict[str, object]:
        """The object that `--json` prints; it always has all keys."""
        error = None
        if self.first_error is not None:
            index, why = self.first_error
            error = {"frame": index, "code": why.code.value, "kind": why.kind, "message": why.message}
        return {
            "model": self.model,
            "sent": self.sent,
            "completed": self.completed,
            "failed": self.failed,
            "outcomes": dict(self.outcomes),
            "elapsed_s": self.elapsed_s,
            "throughput_fps": self.throughput_fps,
            "latency_s": self.quantiles_s(),
            "epochs": {str(epoch): count for epoch, count in sorted(self.epochs.items())},
            "first_error": error,
            "failed_frames": self.failed_frames,
        }

    def in_words(self, output: Path | None) -> str:
        unanswered = self.sent - self.completed - self.failed
        rows = [
            ("outcomes", ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common()) or "none")
        ]
        if unanswered:
            rows.append(("given up", f"{unanswered} in flight at the end"))
        if self.latencies_s:
            shown = (f"{name} {1e3 * (value or 0.0):.4g}" for name, value in self.quantiles_s().items())
            rows.insert(0, ("latency ms", "   ".join(shown)))
            rows.append(("epochs", ", ".join(f"{epoch} ({count})" for epoch, count in sorted(self.epochs.items()))))
        if output is not None and self.outputs:
            rows.append(("saved", f"{output}: {', '.join(self._in_short(*item) for item in self.outputs.items())}"))
        fps = f": {self.throughput_fps:.4g} frames/s" if self.throughput_fps else ""
        title = f"{self.completed} of {self.sent} frames of {self.model} completed in {self.elapsed_s:.3g} s{fps}"
        return "\n".join([title, *(f"{name:<11} {text}" for name, text in rows)])

    def _in_short(self, name: str, arrays: Mapping[int, Array]) -> str:
        if name in self.open_outputs:
            return f"{len(arrays)} arrays {name}[FRAME]"
        shape = next(iter(arrays.values())).shape
        return f"{name} {[len(arrays), *(shape[1:] if self.along_batch and shape[:1] == (1,) else shape)]}"


async def _run(options: SubmitOptions, contents: Sequence[tuple[Path, Content]], tally: Tally) -> None:
    """Send the load that is asked for. `contents`: the files' arrays, not checked against the model yet."""
    from shisha_rt.cli.drive.frames import frames_of_any, has_frames_along_batch, model_shapes
    from shisha_rt.cli.drive.reach import REACH_S, plainly
    from shisha_rt.client import AsyncClient

    with plainly():
        own, theirs = options.key, options.server_key
        async with AsyncClient(options.endpoint, model=options.model, secret_key=own, server_key=theirs) as client:
            metadata = await client.call("model_metadata", timeout_s=REACH_S)
            shapes = model_shapes(metadata)
            frames = [frame for path, content in contents for frame in frames_of_any(path, content, shapes)]
            count = options.frames or len(frames) or _FRAMES
            frames = frames or _random_frames(shapes, count, options.seed)
            tally.model = str(metadata["name"])
            tally.along_batch = has_frames_along_batch((content for _, content in contents), shapes)
            tally.open_outputs = frozenset(tensor["name"] for tensor in metadata["outputs"] if -1 in tensor["shape"])
            deadline_s = None if options.deadline_ms is None else options.deadline_ms / 1e3
            how: dict[str, Any] = {
                "in_flight": options.in_flight,
                "deadline_s": deadline_s,
                "priority": options.priority,
            }
            with _bar(count) as show:
                async with client.stream(options.stream, **how) as stream:
                    await _send(stream, itertools.islice(itertools.cycle(frames), count), options.rate, tally, show)


def _random_frames(shapes: Sequence[Sequence[Tensor]], count: int, seed: int) -> list[Frame]:
    from shisha_rt.cli.drive.frames import random_frames

    by_shape = [random_frames(inputs, min(count, _RANDOM_FRAMES), seed) for inputs in shapes]
    return [frame for turn in zip(*by_shape, strict=True) for frame in turn]


async def _send(
    stream: AsyncStream, frames: Iterable[Frame], rate: float | None, tally: Tally, show: Callable[[int], None]
) -> None:
    from shisha_rt.client import Answer, Unavailable

    began_s: list[float] = []  # when each frame was sent, or was due

    async def due() -> AsyncIterator[Frame]:
        for index, frame in enumerate(frames):
            now_s = time.monotonic()
            if rate is not None:
                due_s = tally.started_s + index / rate
                await asyncio.sleep(due_s - now_s)
                now_s = due_s
            began_s.append(now_s)
            tally.sent += 1
            yield frame

    tally.started_s = tally.ended_s = time.monotonic()
    index = 0
    async for outcome in stream.run(due(), errors="return"):
        tally.ended_s = time.monotonic()
        if isinstance(outcome, Answer):
            tally.add_answer(index, outcome, tally.ended_s - began_s[index])
        else:
            tally.add_error(index, outcome)
            if isinstance(outcome, Unavailable):
                # All other frames in flight have failed, too; frames that were not sent do not count.
                for other in range(index + 1, tally.sent):
                    tally.add_error(other, outcome)
                return
        index += 1
        show(index)


@contextlib.contextmanager
def _bar(total: int) -> Any:
    """A progress bar at a terminal, once the run takes long enough for one to be useful."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    bar: Progress = Progress(
        *Progress.get_default_columns()[:2],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
    )
    task = bar.add_task("frames", total=total)
    show_at_s = time.monotonic() + _SHOW_AFTER_S

    def show(done: int) -> None:
        bar.update(task, completed=done)
        if not bar.live.is_started and time.monotonic() >= show_at_s:
            bar.start()

    try:
        yield show
    finally:
        bar.stop()


def save(path: Path, arrays: dict[str, Array]) -> None:
    """Write an .npz file. `numpy.savez` takes names as keywords, so it cannot write an output called `file`."""
    import numpy as np

    with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
