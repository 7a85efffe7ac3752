"""Figure 7: the effect of schemes on answers. Without trained weights, int8 is compared with floating point instead.

Operators on the NPU are computed in integers as by a worker, all else in fp32, and compared with fp32 throughout, at
the tensor before a network's last Softmax. The zoo's networks have random weights, so frames are noise, other than
those for calibration of scales. The paper's figure is of four networks, which its text does not name; here it is of
those for which the schemes differ. One trained network, the zoo's reader of text, is run by the same schemes on the
same board: it reads drawn words whose text is known, with scales calibrated on other drawn words.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from PIL import Image, ImageDraw, ImageFont

from benchmarks.partitiontuner.board import SCHEMES as PUBLISHED
from benchmarks.partitiontuner.board import board_costs, board_devices
from benchmarks.partitiontuner.cases import TITLES, Planned
from benchmarks.report.results import Row
from shisha_rt.machine.device import Device
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.scales import make_scales
from shisha_rt.model.graph import Graph
from shisha_rt.model.zoo import zoo_path
from shisha_rt.papers.partitiontuner.scheme_plans import scheme_plan
from stages.built.clean_model import CleanModel
from stages.built.placed import PlacedModel, PlacedStage

Array = npt.NDArray[Any]

FIGURE_7: Final = ("resnet50", "resnext50", "resnet18", "squeezenet")
READER: Final = "text_recogniser"
_CPU: Final = Device("cpu", "", "onnxruntime", "cpu", "fp32")
_NPU: Final = Device("npu", "", "onnxruntime", "npu", "int8")
_SEED: Final = 1
_SAID: Final = (
    "slow machine shares memory between cores while frames wait queue layer moves from one place other network reads "
    "lines text page detector answers each word daemon tunes itself online plan stage epoch worker device"
)
_SHOWN_WORDS: Final = 16


def closeness_rows(plans: Sequence[Planned], frames: int) -> Iterator[Row]:
    """Rows for the schemes of one case, each with its own operators on the NPU; without the CPU alone."""
    by_placement: dict[tuple[int, ...], dict[str, float]] = {}
    for plan in plans:
        there = plan.scheme_plan.assignment
        if plan.scheme == "baseline":
            continue
        if there not in by_placement:
            sides, generator = Sides.of(plan.case.path, [place == 1 for place in there]), np.random.default_rng(_SEED)
            noise = (generator.standard_normal(sides.graph.inputs[0].shape, np.float32) for _ in range(frames))
            by_placement[there] = closeness(list(map(sides.answers, noise)))
        yield {
            "network": plan.case.published.title,
            "form": plan.case.form,
            "scheme": TITLES[plan.scheme],
            "Convs on NPU": plan.cell.convs_on_npu,
            "of": plan.convs,
            "cosine": by_placement[there]["cosine"],
            "1 - cosine": 1 - by_placement[there]["cosine"],
            "signal to noise dB": by_placement[there]["signal_to_noise_db"],
            "frames": frames,
        }


def reader_rows(lines: int) -> Iterator[Row]:
    """Rows for the trained reader by the paper's schemes, each with its own operators on the NPU."""
    graph = compile_model(zoo_path(READER), plain="operators").model.graph
    costs = board_costs(graph, board_devices())
    known: dict[tuple[int, ...], Row] = {}
    for scheme, title in PUBLISHED.items():
        plan = scheme_plan(scheme, costs)
        assert plan is not None  # the CPU runs all
        if plan.assignment not in known:
            known[plan.assignment] = _read_row([place == 1 for place in plan.assignment], lines)
        yield {"scheme": title, **known[plan.assignment]}


@dataclass(frozen=True, slots=True)
class Sides:
    """One network up to its last Softmax, some of its operators in int8, and all of it in fp32."""

    int8: PlacedStage
    fp32: PlacedStage
    graph: Graph

    @classmethod
    def of(cls, path: Path, in_int8: Sequence[bool], calibration: Path | None = None) -> Sides:
        """`in_int8` (operators,). Scales are calibrated on noise, or on the frames of `calibration`."""
        compiled = compile_model(path, plain="operators")
        model = CleanModel.read(compiled.model_folder, make_scales(compiled, calibration))
        placed = PlacedModel(model, compiled.index, (_CPU, _NPU), 1, device_speed=lambda _: 1.0)
        count = len(in_int8) - (model.graph.operators[-1].op_type == "Softmax")
        placement = [(_NPU if is_int8 else _CPU).name for is_int8 in in_int8[:count]]
        whole = ((0, count - 1),)
        return cls(placed.stage(whole, placement), placed.stage(whole, [_CPU.name] * count), model.graph)

    def answers(self, frame: Array) -> tuple[Array, Array]:
        given = {self.graph.inputs[0].name: frame}
        (ours,), (exact,) = (side.answers(given).values() for side in (self.int8, self.fp32))
        return ours, exact


def closeness(answers: Sequence[tuple[Array, Array]]) -> dict[str, float]:
    """Closeness of int8 to fp32: the mean cosine over frames, and the signal-to-noise ratio of all frames together."""
    pairs = [(np.ravel(ours).astype(np.float64), np.ravel(exact).astype(np.float64)) for ours, exact in answers]
    noise = sum(float(((ours - exact) ** 2).sum()) for ours, exact in pairs)
    signal = sum(float((exact**2).sum()) for _, exact in pairs)
    cosines = (float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) for a, b in pairs)
    with np.errstate(divide="ignore"):
        return {
            "cosine": statistics.mean(cosines),
            "signal_to_noise_db": 10 * float(np.log10(np.float64(signal) / noise)),
        }


# --- the trained reader -------------------------------------------------------------------------------------------


def _read_row(in_int8: Sequence[bool], lines: int) -> Row:
    """How many drawn lines of two words are read correctly."""
    rng, path = random.Random(_SEED), zoo_path(READER)
    compiled = compile_model(path, plain="operators")
    (image,) = compiled.model.graph.inputs
    characters = _characters(path)
    texts = [_text(rng) for _ in range(lines)]
    with tempfile.TemporaryDirectory() as folder:
        others = Path(folder) / "lines.npz"
        named: dict[str, Any] = {image.name: np.stack([_drawn(_text(rng), image.shape) for _ in range(_SHOWN_WORDS)])}
        np.savez(others, **named)
        sides = Sides.of(path, in_int8, others)
    answers = [sides.answers(_drawn(text, image.shape)) for text in texts]
    convs = [
        is_int8 for is_int8, operator in zip(in_int8, sides.graph.operators, strict=True) if operator.op_type == "Conv"
    ]
    read = [_read(ours[0], characters) for ours, _ in answers]
    return {
        "Convs on NPU": sum(convs),
        "of": len(convs),
        "cosine": closeness(answers)["cosine"],
        "lines right": sum(reading == text for reading, text in zip(read, texts, strict=True)),
        "lines": lines,
    }


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
