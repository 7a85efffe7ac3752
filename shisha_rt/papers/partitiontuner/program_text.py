"""The text of a program that runs a schedule of partitions: the schedule, a function for each place, and threads.

It follows PartitionTuner's Figure 5, and is formatted as ruff and black would format it. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Tensor
from shisha_rt.papers.partitiontuner.program_template import (
    FRAME,
    IF_EMULATED,
    IF_REAL,
    LOADERS,
    MAIN,
    PLACES,
    STARTED,
    USE,
)
from shisha_rt.tensors import NUMPY_OF

MARK: Final = "# A program of shisha-rt's, made by `shisha-rt plan --program`."
"""The first line of each program."""

_WIDTH: Final = 88
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Processor:
    """A place on `cores`, whose device uses `threads` threads. `emulated`: it is made slower than this host."""

    name: str
    cores: tuple[int, ...]
    threads: int
    speed: float
    device: Device
    emulated: bool


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """`files`: one for each of its runs of operators; `operators`: names of each run's first and last operator.

    It starts when the partitions `after`, on other places, have ended, and may overlap with those `beside`. `told_s`:
    predicted seconds, which a described device is made to take.
    """

    name: str
    place: str
    files: tuple[str, ...]
    after: tuple[str, ...]
    beside: tuple[str, ...]
    operators: tuple[tuple[str, str], ...]
    told_s: float


@dataclass(frozen=True, slots=True)
class Program:
    """`partitions`: in the plan's order. `predicted_s`: unloaded latency, without hand-overs."""

    title: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    processors: tuple[Processor, ...]
    partitions: tuple[WrittenPartition, ...]
    time_scale: float
    predicted_s: float

    @property
    def emulated(self) -> bool:
        return any(processor.emulated for processor in self.processors)


def program_text(program: Program) -> str:
    """The program in Python; it needs numpy, the engines, and `shisha_rt.emulated` if something is emulated."""
    functions = _function_names(program)
    engines = {_engine(processor) for processor in program.processors}
    blocks = [
        _head(program, engines),
        *(_function(program, processor, functions[processor.name]) for processor in program.processors),
        *(block for needed, block in LOADERS if engines & needed),
        FRAME,
        PLACES,
        _places(program, functions),
        MAIN,
    ]
    text = "\n\n\n".join(block.strip("\n") for block in blocks) + "\n"
    kept, dropped = (IF_EMULATED, IF_REAL) if program.emulated else (IF_REAL, IF_EMULATED)
    lines = text.splitlines(keepends=True)
    return "".join(line.replace(kept, "") for line in lines if not line.endswith(f"{dropped}\n"))


def _engine(processor: Processor) -> str:
    """Name of the template's loader for a processor's files. int8 is always computed by ONNX Runtime."""
    if processor.device.precision == "int8":
        return "as_it_stands"
    if processor.device.engine == "openvino" and processor.device.precision == "bf16":
        return "openvino_bf16"
    return processor.device.engine


def _head(program: Program, engines: Iterable[str]) -> str:
    imported = sorted({"openvino" if engine.startswith("openvino") else "onnxruntime" for engine in engines})
    lines = [MARK, "#", f"# {_plain(program.title)}.", *_schedule(program), '"""' + USE.strip(), '"""', ""]
    lines += [f"import {name}" for name in ("atexit", "functools", "os", "queue", "sys", "threading", "time")]
    lines += ["from pathlib import Path", "", "import numpy as np", *(f"import {name}" for name in imported)]
    if program.emulated:
        lines += ["", "from shisha_rt.emulated import EmulatedTime"]
    lines += ["", 'PARTS = Path(__file__).with_suffix(".parts")', "INPUTS = {"]
    for tensor in program.inputs:
        lines += _input(tensor)
    lines += ["}", "OUTPUTS = [", *(f"    {_quoted(name)}," for name in program.outputs), "]"]
    lines.append(f"PREDICTED_S = {_number(program.predicted_s)}  # without what handing on takes")
    if program.emulated:
        lines.append(f"TIME_SCALE = {program.time_scale!r}  # by which all times are stretched")
    return "\n".join(lines)


def _schedule(program: Program) -> Iterator[str]:
    """Yield a line for each partition, with a mark on those that run in parallel with others."""
    device_of = {named_processor.name: named_processor for named_processor in program.processors}
    rows = []
    for partition in program.partitions:
        processor = device_of[partition.place]
        where = f"{processor.name}: {processor.device.name}"
        operators = ", ".join(first if first == last else f"{first} to {last}" for first, last in partition.operators)
        ms = f"{partition.told_s * 1e3:.3f} ms"
        rows.append(
            (partition.name, "|" if partition.beside else " ", _plain(where), ms, _plain(operators), _beside(partition))
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    yield f"# The schedule: {program.predicted_s * 1e3:.4g} ms predicted for a frame, without what handing on takes;"
    yield "# each place runs its partitions in this order, those marked | while others run."
    yield "#"
    for name, mark, where, ms, operators, beside in rows:
        line = f"#   {name:{widths[0]}} {mark} {where:{widths[2]}}  {ms:>{widths[3]}}  {operators}{beside}"
        yield line.rstrip()


def _beside(partition: WrittenPartition) -> str:
    if not partition.beside:
        return ""
    named, more = partition.beside[:_MOST_NAMED], len(partition.beside) - _MOST_NAMED
    return f" (beside {', '.join(named)}{f' and {more} more' if more > 0 else ''})"


def _function_names(program: Program) -> dict[str, str]:
    names_of: dict[str, str] = {}
    for processor in program.processors:
        name = wanted = "on_" + re.sub(r"\W", "_", processor.name, flags=re.ASCII)
        numbers = itertools.count(2)
        while name in names_of.values():
            name = f"{wanted}_{next(numbers)}"
        names_of[processor.name] = name
    return names_of


def _function(program: Program, processor: Processor, name: str) -> str:
    device = processor.device
    emulated = ", emulated" if processor.emulated else ""
    lines = [f"def {name}(place):", f"    # {_plain(processor.name)}: {_plain(device.name)}{emulated}"]
    own = [partition for partition in program.partitions if partition.place == processor.name]
    for stage in own:
        pacing = [f"takes_s={_number(stage.told_s)}"] if device.described else []
        files = [_quoted(file) for file in stage.files]
        lines += _call(f"    {stage.name} = place.load", [_quoted(stage.name), *files, *pacing])
    lines.append("    for frame in place.frames():")
    for stage in own:
        after = [f"after=[{', '.join(map(_quoted, stage.after))}]"] if stage.after else []
        lines += _call(f"        {stage.name}", ["frame", *after])
    return "\n".join(lines)


def _places(program: Program, functions: dict[str, str]) -> str:
    lines = ["@functools.cache", "def places():", '    """Their threads, once each has loaded its partitions."""']
    lines.append("    found = [")
    for processor in program.processors:
        arguments = [
            functions[processor.name],
            f"load_{_engine(processor)}",
            f"cores={_cores(processor.cores)}",
            f"threads={processor.threads}",
        ]
        if processor.speed != 1:
            arguments.append(f"speed={processor.speed!r}")
        *first, last = _call("        Place", arguments)
        lines += [*first, f"{last},"]
    return "\n".join((*lines, "    ]", STARTED.strip("\n")))


def _call(function: str, arguments: list[str]) -> list[str]:
    """Write a call in one line, or with a line for each argument, and for each entry of a list too long for a line."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) < _WIDTH:
        return [line]
    indent = " " * (len(function) - len(function.lstrip()))
    lines = [f"{function}("]
    for argument in arguments:
        name, bracket, entries = argument.partition("[")
        if bracket and len(f"{indent}    {argument},") > _WIDTH:
            each = (f"{indent}        {entry}," for entry in entries.removesuffix("]").split(", "))
            lines += [f"{indent}    {name}[", *each, f"{indent}    ],"]
        else:
            lines.append(f"{indent}    {argument},")
    return [*lines, f"{indent})"]


def _cores(cores: Sequence[int]) -> str:
    first, last = cores[0], cores[-1]
    if len(cores) == 1 or tuple(cores) != tuple(range(first, last + 1)):
        return f"{list(cores)!r}"
    return f"range({first}, {last + 1})" if first else f"range({last + 1})"


def _input(tensor: Tensor) -> list[str]:
    name, shape, dtype = _quoted(tensor.name), repr(tensor.shape), _quoted(str(NUMPY_OF[tensor.datatype]))
    line = f"    {name}: ({shape}, {dtype}),"
    return [line] if len(line) <= _WIDTH else [f"    {name}: (", f"        {shape},", f"        {dtype},", "    ),"]


def _quoted(text: str) -> str:
    literal = repr(text)
    return literal if '"' in literal else f'"{literal[1:-1]}"'


def _number(value: float) -> str:
    return f"{value:.9g}"


def _plain(text: str) -> str:
    """Replace unprintable characters, such as newlines, so that a name cannot end the comment it is in."""
    return "".join(character if character.isprintable() else "?" for character in text)
