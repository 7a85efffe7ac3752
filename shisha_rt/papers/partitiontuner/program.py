"""A schedule of partitions as a Python program that runs on the engines directly (PartitionTuner, Section 3.5).

Beside the program is a folder of ONNX files, one for each run of each partition, cut out of the cleaned graph. On a
machine without devices a daemon's stages are cut out of the engine's optimised graph instead, so rounding may differ.
Shell.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.messages.program_parts import PartsJob, ProgramPart
from shisha_rt.model.graph import Graph
from shisha_rt.model.layers import operators_of
from shisha_rt.model.spans import Span, ends_of
from shisha_rt.papers.partitiontuner.program_text import MARK, Processor, Program, WrittenPartition, program_text
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan
from shisha_rt.plan.plan import Plan
from shisha_rt.process.job import run_job

_SUFFIX: Final = ".py"
_MOST_WEIGHT_BYTES: Final = 2**31 - 2**20
"""Protobuf's limit of 2 GiB, less room for the operators."""

_USUAL: Final = Device("onnxruntime", "", "onnxruntime", memory="", precision="fp32")
"""The device of a place without devices."""


def check_program_file(path: Path) -> None:
    """Raises BadInput unless a program may be written to `path`, as a new file or in place of an earlier program."""
    if path.suffix != _SUFFIX or not path.stem:
        raise BadInput(f"--program {path}: expected a name that ends in {_SUFFIX}", Error.WRONG_OPTION)
    try:
        with path.open("rb") as file:
            is_ours = file.readline().rstrip() == MARK.encode()
    except FileNotFoundError:
        parts = _parts_folder(path)
        if parts.exists():
            raise BadInput(
                f"--program {path}: {parts} exists without its program; expected neither or both", Error.WRONG_OPTION
            ) from None
    except OSError as error:
        raise BadInput(
            f"--program {path}: cannot be read ({error.strerror}), expected a program or no file", Error.UNREADABLE_FILE
        ) from None
    else:
        if not is_ours:
            raise BadInput(
                f"--program {path}: exists, and is no program of shisha-rt's; expected another name", Error.WRONG_OPTION
            )
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise _not_written(path, error) from None


def check_program_machine(machine: Machine) -> None:
    """Raises BadInput for a machine whose times a program does not emulate, or with a place without cores."""
    limited = any(memory.bandwidth_bytes_per_s is not None for memory in machine.memories)
    for has, what in (
        (limited, "has a memory of limited bandwidth"),
        (machine.timing == "modelled", 'has timing = "modelled"'),
        (any(not place.cores for place in machine.places), "has a place without cores"),
    ):
        if has:
            raise BadInput(
                f"--program: {machine.source} {what}; expected a machine without, as a program does not emulate that",
                Error.WRONG_OPTION,
            )


def write_program(path: Path, ready: ModelOnMachine, scheme_plan: SchemePlan) -> None:
    """Write the program and, beside it, its parts; old files are replaced once all is written.

    Raises BadInput if a part is too large for a file or a file cannot be written, Failure if an engine fails.
    """
    program, parts = _program(ready, scheme_plan)
    check_part_sizes(ready.compiled.model.graph, parts)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.stem}.", dir=path.parent) as folder:
            made, text = Path(folder, "parts"), Path(folder, "program")
            made.mkdir()
            job = PartsJob(str(ready.compiled.model_folder), str(made), parts)
            failed = f"{path}: the parts of the program could not be written"
            run_job("stages.jobs.write_parts", failed=failed, given=msgspec.json.encode(job))
            text.write_text(program_text(program), encoding="utf-8")
            with _replaced(_parts_folder(path), made, Path(folder, "before")):
                text.replace(path)
    except OSError as error:
        raise _not_written(path, error) from None


def check_part_sizes(graph: Graph, parts: Sequence[ProgramPart]) -> None:
    """Raises BadInput for a part with more weights than an ONNX file can have."""
    for part in parts:
        operators = graph.operators[part.first : part.last + 1]
        read = {name for operator in operators for name in operator.inputs if name in graph.constants}
        size_bytes = sum(graph.constants[name].size_bytes for name in read)
        if size_bytes > _MOST_WEIGHT_BYTES:
            raise BadInput(
                f"--program: {part.file} would have {size_bytes / 2**30:.1f} GiB of weights, expected partitions of "
                "less than 2 GiB, the most that an ONNX file can hold",
                Error.WRONG_OPTION,
            )


def _parts_folder(path: Path) -> Path:
    return path.with_suffix(".parts")


def _not_written(path: Path, error: OSError) -> BadInput:
    return BadInput(
        f"--program {path}: cannot be written ({error.strerror or error}), expected a folder that may be written",
        Error.UNWRITABLE_FILE,
    )


@contextlib.contextmanager
def _replaced(target: Path, made: Path, aside: Path) -> Iterator[None]:
    """Move `made` to the folder `target`, whose old content is kept at `aside` and restored if the body fails."""
    with contextlib.suppress(FileNotFoundError):
        target.rename(aside)
    try:
        made.rename(target)
        yield
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        if aside.exists():
            aside.rename(target)
        raise


def _program(ready: ModelOnMachine, scheme_plan: SchemePlan) -> tuple[Program, tuple[ProgramPart, ...]]:
    compiled, machine, plan = ready.compiled, ready.machine, scheme_plan.plan
    graph = compiled.model.graph
    runs = [[operators_of(compiled.layers, *run) for run in stage.work] for stage in plan.stages]
    devices = {place: ready.devices[place][0] if ready.devices else _USUAL for place in plan.places}
    before = stages_before(graph, plan, runs)
    partitions, parts = [], []
    for number, stage in enumerate(plan.stages):
        name, device = f"p{number}", devices[stage.place]
        files = [f"{name}.onnx"] if len(runs[number]) == 1 else [f"{name}.{i}.onnx" for i in range(len(runs[number]))]
        parts += [ProgramPart(file, *run, device) for file, run in zip(files, runs[number], strict=True)]
        partitions.append(
            WrittenPartition(
                name,
                stage.place,
                tuple(files),
                after=_waited_for(before, plan, number),
                beside=_beside(before, number),
                operators=tuple((_name_of(graph, first), _name_of(graph, last)) for first, last in runs[number]),
                told_s=scheme_plan.foretold.stage_s[number],
            )
        )
    foretold = scheme_plan.foretold
    processors = tuple(_processor(machine, machine.place(place), devices[place]) for place in plan.places)
    emulated = ", emulated," if any(processor.emulated for processor in processors) else ""
    program = Program(
        title=f"{graph.name} on {machine.name}{emulated} by {scheme_plan.scheme}",
        inputs=graph.inputs,
        outputs=tuple(tensor.name for tensor in graph.outputs),
        processors=processors,
        partitions=tuple(partitions),
        time_scale=machine.time_scale,
        predicted_s=foretold.latency_s - foretold.handover_s,
    )
    return program, tuple(parts)


def _processor(machine: Machine, place: Place, device: Device) -> Processor:
    threads = device.threads_on(place.threads)
    emulated = machine.is_emulated(place, [device])
    return Processor(place.name, place.cores, threads, place.speed, device, emulated=emulated)


def _name_of(graph: Graph, operator: int) -> str:
    node = graph.operators[operator]
    return node.name or f"{node.op_type} {operator}"


def stages_before(graph: Graph, plan: Plan, runs: Sequence[Sequence[Span]]) -> list[frozenset[int]]:
    """(stages,): all stages that must end before each begins. A place runs its stages in the plan's order.

    Beside the stages that the plan names (`after`) these are all producers of the stage's inputs: the plan was made for
    the engine's optimised graph, which may lack an operator of the cleaned graph. Raises Failure if a producer is a
    later stage.
    """
    stage_of = {at: number for number, run in enumerate(runs) for first, last in run for at in range(first, last + 1)}
    before: list[frozenset[int]] = []
    for number, stage in enumerate(plan.stages):
        read, _ = ends_of(graph, runs[number])
        producers = {stage_of[graph.producer[name]] for name in read if name in graph.producer}
        if any(producer >= number for producer in producers):
            raise Failure(
                f"stage {number} reads a tensor that a later stage makes: no program can be written of this plan",
                Error.PLAN_UNFIT,
            )
        direct = producers | set(stage.after) | set(_earlier(plan, number))
        before.append(frozenset(direct).union(*(before[source] for source in direct)))
    return before


def _earlier(plan: Plan, number: int) -> list[int]:
    return [stage for stage in range(number) if plan.stages[stage].place == plan.stages[number].place]


def _waited_for(before: Sequence[frozenset[int]], plan: Plan, number: int) -> tuple[str, ...]:
    """Names of the stages to wait for: the last on each other place, unless this place has waited for it before."""
    own = _earlier(plan, number)
    new = before[number].difference(own, *(before[stage] for stage in own))
    return tuple(f"p{stage}" for stage in sorted({plan.stages[stage].place: stage for stage in sorted(new)}.values()))


def _beside(before: Sequence[frozenset[int]], number: int) -> tuple[str, ...]:
    """Names of the stages that may run at the same time: neither waits for the other."""
    return tuple(
        f"p{other}"
        for other in range(len(before))
        if other != number and other not in before[number] and number not in before[other]
    )
