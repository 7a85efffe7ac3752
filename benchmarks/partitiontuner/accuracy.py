"""The effect of an int8 NPU on answers: `python -m benchmarks int8_accuracy`.

Each Conv that an NPU of 16 × 16 can run, with its Relu, is computed in integers as by a worker, all else in fp32; the
result is compared with fp32 throughout, at the tensor before a network's last Softmax. The zoo's networks have random
weights, so frames are noise, other than the frames for calibration of scales. The text recogniser is trained: it reads
drawn words whose text is known, with scales calibrated on noise and on other drawn words.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import typer
from PIL import Image, ImageDraw, ImageFont

from benchmarks.report.facts import facts
from benchmarks.report.results import Row, save_csv, show
from shisha_rt.machine.device import Device
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.scales import make_scales
from shisha_rt.model.graph import Graph
from shisha_rt.model.zoo import zoo_path
from stages.built.clean_model import CleanModel
from stages.built.placed import PlacedModel, PlacedStage
from stages.engines.session import untimed

Array = npt.NDArray[Any]

NETWORKS: Final = ("zfnet512", "alexnet", "inception_v1", "resnet50", "resnext50", "resnet18", "squeezenet")
READER: Final = "text_recogniser"
_CPU: Final = Device("cpu", "", "onnxruntime", "cpu", "fp32")
_NPU: Final = Device("npu", "", "onnxruntime", "npu", "int8")
_SIDE: Final = 16
_SEED: Final = 1
_SAID: Final = (
    "slow machine shares memory between cores while frames wait queue layer moves from one place other network reads "
    "lines text page detector answers each word daemon tunes itself online plan stage epoch worker device"
)
_SHOWN_WORDS: Final = 16
_ROUNDS: Final = 5


def int8_accuracy(
    networks: Annotated[str, typer.Option(help="Of the zoo, separated by commas.")] = ",".join(NETWORKS),
    frames: Annotated[int, typer.Option(help="Of noise for each network, and words for the reader.")] = 64,
) -> None:
    """Answers in int8 against fp32: the zoo's networks on noise, a trained reader of text on drawn words."""
    about = facts(f"int8_accuracy --networks {networks} --frames {frames}")
    rows = [accuracy_row(name, frames) for name in networks.split(",")]
    save_csv("partitiontuner_int8", rows, about)
    notes = ["ms: CPU time of what is in int8, on one thread of this host; no device's"]
    show(f"int8 against fp32, {frames} frames of noise", rows, notes)
    read = reader_rows(frames)
    save_csv("partitiontuner_int8_reader", read, about)
    show(f"the trained text recogniser on {frames} drawn lines of two words", read)


@dataclass(frozen=True, slots=True)
class Sides:
    """One network up to its last Softmax, its capable Convs and Relus in int8, and all of it in fp32."""

    name: str
    int8: PlacedStage
    fp32: PlacedStage
    operators_int8: tuple[bool, ...]
    graph: Graph
    placed: PlacedModel

    def answers(self, frame: Array) -> tuple[Array, Array]:
        """Answers to a frame in int8 and in fp32."""
        given = {self.graph.inputs[0].name: frame}
        (ours,), (exact,) = (side.answers(given).values() for side in (self.int8, self.fp32))
        return ours, exact

    @property
    def convs(self) -> list[bool]:
        """(Convs,): whether each is in int8."""
        each = zip(self.graph.operators, self.operators_int8, strict=True)
        return [its for operator, its in each if operator.op_type == "Conv"]


def sides_of(name: str, calibration: Path | None = None) -> Sides:
    """A network of the zoo; its scales are calibrated on noise, or on the frames of `calibration`."""
    return sides_of_file(name, zoo_path(name), capable, calibration)


def sides_of_file(
    name: str, path: Path, chosen: Callable[[Graph], Sequence[bool]], calibration: Path | None = None
) -> Sides:
    """A network of a file. `chosen` returns (operators,): whether each is in int8."""
    compiled = compile_model(path, plain="operators")
    model = CleanModel.read(compiled.model_folder, make_scales(compiled, calibration))
    placed = PlacedModel(model, compiled.index, (_CPU, _NPU), 1, device_speed=lambda _: 1.0)
    in_int8 = tuple(chosen(model.graph))
    count = _before_softmax(compiled)
    whole = ((0, count - 1),)
    placement = [(_NPU if its else _CPU).name for its in in_int8[:count]]
    return Sides(
        name, placed.stage(whole, placement), placed.stage(whole, [_CPU.name] * count), in_int8, model.graph, placed
    )


def capable(graph: Graph) -> tuple[bool, ...]:
    """(operators,): by the paper's rule, Convs without groups whose channels fill the NPU, and Relus after them."""
    found: list[bool] = []
    for operator in graph.operators:
        if operator.op_type == "Conv":
            weights = graph.constants.get(operator.inputs[1])
            whole = weights is not None and not any(count % _SIDE for count in weights.shape[:2])
            found.append(whole and operator.attributes.get("group", 1) == 1)
        else:
            maker = graph.producer.get(operator.inputs[0])
            found.append(
                operator.op_type == "Relu"
                and maker is not None
                and graph.operators[maker].op_type == "Conv"
                and found[maker]
            )
    return tuple(found)


def accuracy_row(name: str, frames: int) -> Row:
    """A row for one network on noise, with times of its int8 stages on this host."""
    sides = sides_of(name)
    generator = np.random.default_rng(_SEED)
    shape = sides.graph.inputs[0].shape
    answers = [sides.answers(generator.standard_normal(shape, np.float32)) for _ in range(frames)]
    int8_s, fp32_s = _times_s(sides)
    return {
        "network": name,
        "Convs in int8": sum(sides.convs),
        "of": len(sides.convs),
        **closeness(answers),
        "top-1 the same": statistics.mean(float(ours.argmax() == exact.argmax()) for ours, exact in answers),
        "int8_ms": 1e3 * int8_s,
        "fp32_ms": 1e3 * fp32_s,
    }


def reader_rows(lines: int) -> list[Row]:
    """Rows for the trained reader, with scales calibrated on noise and on lines other than those that it reads."""
    shown = _Lines(lines)
    with shown.others() as path:
        cases = {"noise": sides_of(READER), f"{_SHOWN_WORDS} other lines": sides_of(READER, path)}
    rows: list[Row] = []
    for found_on, sides in cases.items():
        answers = shown.answers(sides)
        rows.append(
            {
                "scales found on": found_on,
                "Convs in int8": sum(sides.convs),
                "of": len(sides.convs),
                **closeness(answers),
                "columns the same": statistics.mean(float((a.argmax(-1) == b.argmax(-1)).mean()) for a, b in answers),
                "lines right in int8": shown.right(ours for ours, _ in answers),
                "lines right in fp32": shown.right(exact for _, exact in answers),
                "lines": lines,
            }
        )
    return rows


def read_row(in_int8: Sequence[bool], lines: int) -> Row:
    """A row for the trained reader on drawn lines. `in_int8` (operators,): whether each is in int8."""
    shown = _Lines(lines)
    with shown.others() as path:
        sides = sides_of_file(READER, zoo_path(READER), lambda _: in_int8, path)
    answers = shown.answers(sides)
    return {
        "Convs on NPU": sum(sides.convs),
        "of": len(sides.convs),
        "cosine": closeness(answers)["cosine"] if any(in_int8) else 1.0,
        "lines right": shown.right(ours for ours, _ in answers),
        "lines": lines,
    }


def closeness(answers: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """Closeness of int8 to fp32: the mean cosine over frames, and the signal-to-noise ratio of all frames together."""
    pairs = [(np.ravel(ours).astype(np.float64), np.ravel(exact).astype(np.float64)) for ours, exact in answers]
    noise = sum(float(((ours - exact) ** 2).sum()) for ours, exact in pairs)
    signal = sum(float((exact**2).sum()) for _, exact in pairs)
    cosines = (float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) for a, b in pairs)
    return {"cosine": statistics.mean(cosines), "signal_to_noise_db": 10 * float(np.log10(signal / noise))}


def _times_s(sides: Sides) -> tuple[float, float]:
    """Total CPU time of the runs of operators in int8, and of the same in fp32; medians, taken in turns."""
    stages = [
        tuple(sides.placed.stage((run,), [device.name] * (run[1] - run[0] + 1)) for device in (_NPU, _CPU))
        for run in _runs(sides.operators_int8)
    ]
    taken = [[_seconds(partial(side.apart(), untimed)) for side in pair] for pair in stages for _ in range(_ROUNDS)]
    medians = np.median(np.reshape(taken, (len(stages), _ROUNDS, 2)), axis=1).sum(axis=0)
    return float(medians[0]), float(medians[1])


def _seconds(run: Callable[[], object]) -> float:
    run()  # of what was in the caches before, nothing counts
    start_s = time.process_time()
    run()
    return time.process_time() - start_s


def _runs(chosen: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last operator of each run of chosen operators."""
    firsts = [i for i, its in enumerate(chosen) if its and not (i and chosen[i - 1])]
    return [(first, next((i for i in range(first, len(chosen)) if not chosen[i]), len(chosen)) - 1) for first in firsts]


def _before_softmax(compiled: Compiled) -> int:
    operators = compiled.model.graph.operators
    return len(operators) - (operators[-1].op_type == "Softmax")


# The trained reader


class _Lines:
    """Drawn lines of two words for the trained reader to read."""

    def __init__(self, count: int) -> None:
        self._rng = random.Random(_SEED)
        self._texts = [_text(self._rng) for _ in range(count)]
        self._characters = _characters(zoo_path(READER))
        (self._image,) = compile_model(zoo_path(READER), plain="operators").model.graph.inputs

    @contextlib.contextmanager
    def others(self) -> Iterator[Path]:
        """A file with other lines, for calibration."""
        frames = np.stack([_drawn(_text(self._rng), self._image.shape) for _ in range(_SHOWN_WORDS)])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lines.npz"
            named: dict[str, Any] = {self._image.name: frames}
            np.savez(path, **named)
            yield path

    def answers(self, sides: Sides) -> list[tuple[Array, Array]]:
        return [sides.answers(_drawn(text, self._image.shape)) for text in self._texts]

    def right(self, answers: Iterable[Array]) -> int:
        """How many lines are read correctly."""
        return sum(
            _read(answer[0], self._characters) == text for answer, text in zip(answers, self._texts, strict=True)
        )


def _text(rng: random.Random) -> str:
    return " ".join(rng.sample(_SAID.split(), 2))


def _drawn(text: str, shape: Sequence[int]) -> Array:
    """A frame (1, 3, height, width) of black text on white, values from -1 to 1."""
    height, width = shape[2:]
    image = Image.new("L", (width, height), "white")
    size = height * 0.6
    ImageDraw.Draw(image).text((8, (height - size) / 2), text, "black", ImageFont.load_default(size))
    pixels = np.asarray(image, np.float32) / 127.5 - 1
    return np.ascontiguousarray(np.broadcast_to(pixels, tuple(shape)))


def _characters(model: Path) -> list[str]:
    said = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
    return ["", *said["character"].split("\n"), " "]


def _read(answer: Array, characters: Sequence[str]) -> str:
    """Text of an answer (columns, characters): likeliest characters by column, without repeats and blanks (CTC)."""
    best = answer.argmax(axis=1)
    return "".join(characters[n] for i, n in enumerate(best) if n and (i == 0 or n != best[i - 1])).strip()
