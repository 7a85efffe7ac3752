"""`shisha-rt check`: what will work with a model here, before anything is started."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import typer

from shisha_rt.checked import NO_TEXT
from shisha_rt.cli.layers import form_in_words, one_frame_at_a_time, short
from shisha_rt.cli.options import (
    Dims,
    Json,
    MachineFile,
    ManyShapes,
    Model,
    check_writable,
    parse_dims,
    parse_shapes,
    size_words,
)
from shisha_rt.cli.progress import progress
from shisha_rt.costs.engine_trials import MOST_APART, ahead, why_not
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.errors import BadInput, Error
from shisha_rt.extras import pip_install
from shisha_rt.machine.host.this_machine import host_in_words, host_object
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.plan.engine import ENGINES, is_exact
from shisha_rt.show.lines import counted
from shisha_rt.show.picture import milliseconds
from shisha_rt.whole_file import whole_file

if TYPE_CHECKING:
    from shisha_rt.costs.engine_trials import EnginesTried, EngineTrial
    from shisha_rt.machine.allotment import CpuLimits, HostCore
    from shisha_rt.machine.machine import Machine
    from shisha_rt.measure.check import Checked, CutCost
    from shisha_rt.model.layers import Layer
    from shisha_rt.tensors import Tensor

Host: TypeAlias = "tuple[CpuLimits, Sequence[HostCore], int | None]"
"""Limits of this process, the cores that it may use, and its memory limit in bytes."""

_THIS_MACHINE: Final = "this-machine"
_HEAD_WIDTH: Final = 10
_MOST_LISTED: Final = 8
_MOST_HEAVY: Final = 3
_LEAST_SHARE: Final = 0.01
_LEAST_WIDTH: Final = 60
_SMALL_S: Final = 0.25e-3
"""Engine time of a frame on one thread, below which client and daemon take longer than the engine."""


def check_command(
    model: Model,
    machine: MachineFile = _THIS_MACHINE,
    dim: Dims = None,
    shape: ManyShapes = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Keep model, shapes and machine in a new daemon file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what will work with MODEL here, and what is odd about it.

    No daemon is started. MODEL is compiled, and run on each engine that is installed, which takes some seconds and is
    kept: the next start finds it.

    \b
    Examples:
      shisha-rt check model.onnx
      shisha-rt check detector.onnx --shape images=1x3x640x640
      shisha-rt check detector.onnx --dim width=640 --write detector.toml
      shisha-rt check zoo:squeezenet --machine two-engines --json
    """  # noqa: D301 (\b keeps the examples on lines of their own)
    from shisha_rt.machine.config.machine_file import check_runnable, load_machine
    from shisha_rt.machine.host.cgroups import ControlGroups
    from shisha_rt.machine.host.cores import host_cores
    from shisha_rt.machine.host.this_machine import this_limits
    from shisha_rt.measure.check import check_model
    from shisha_rt.model.zoo import resolve_model

    if write is not None:
        _check_new(write)
    dims = parse_dims(dim)
    sizes = [InputSizes(dims, given) for given in parse_shapes(shape)]
    places = load_machine(machine)
    check_runnable(places)
    checked = check_model(resolve_model(model, progress), places, sizes, progress)
    limits = this_limits()
    host = limits, host_cores(sorted(limits.cores)), ControlGroups().memory_limit_bytes()
    named = [] if machine == _THIS_MACHINE else ["--machine", machine]
    served = [model, *size_words(dim, shape), *named]
    if write is not None:
        _write_new(write, "".join(_daemon_file(write.absolute().parent, model, machine, checked)))
        served = [str(write)]
    following = _what_next(checked, places, shlex.join(["shisha-rt", "serve", *served]))
    if as_json:
        print(json.dumps(_as_object(checked, places, host, following)))
    else:
        _print(checked, places, host, following)


def _write_new(write: Path, content: str) -> None:
    """Write a new file, or none. Raises BadInput if there is one, or if `content` is not printable text."""
    if NO_TEXT.search(content.replace("\n", "")):
        raise BadInput(f"--write {write}: a path in it is not printable text, expected one that is", Error.WRONG_OPTION)
    try:
        write.touch(exist_ok=False)
    except FileExistsError:
        raise _there(write) from None
    try:
        with whole_file(write) as file:
            file.write_text(content, encoding="utf-8")
    except BaseException:
        write.unlink()
        raise


def _check_new(write: Path) -> None:
    if write.suffix != ".toml":
        raise BadInput(f"--write {write}: expected a name that ends in .toml", Error.WRONG_OPTION)
    if write.exists():
        raise _there(write)
    check_writable("--write", write)


def _there(write: Path) -> BadInput:
    return BadInput(f"--write {write}: is there already, expected a new file", Error.UNWRITABLE_FILE)


def _daemon_file(folder: Path, model: str, machine: str, checked: Checked) -> Iterator[str]:
    """Yield the lines of a daemon file in `folder` that serves this model, in these shapes, on this machine."""
    files = {"model": model, "machine": machine}
    for name, text in files.items():
        path = Path(text).absolute()
        if path.is_file():
            text = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
        if text != _THIS_MACHINE:
            yield f"{name} = {_quoted(text)}\n"
    for compiled_shape in checked.compiled.each:
        yield "\n[[shape]]\n"
        for spec in compiled_shape.index.inputs:
            yield f"{_quoted(spec.name)} = {list(spec.shape)}\n"


def _quoted(text: str) -> str:
    """As a string of TOML: as in JSON, without its pairs of escapes for characters beyond 16 bits."""
    return json.dumps(text, ensure_ascii=False)


def _what_next(checked: Checked, machine: Machine, serve: str) -> tuple[str, ...]:
    """Command lines to serve the model; if there are several, each with its effect behind a `#`."""
    if len(machine.places) == 1:
        return (serve,)
    if not checked.compiled.legal_cuts:
        return (
            f"{serve}  # a copy on each place while many frames come",
            f"{serve} --objective latency  # places compute a frame together, where that is faster",
        )
    return (
        f"{serve}  # the least time of each frame while few come, the most frames a second while many do",
        f"{serve} --objective throughput  # the most frames a second, however many come",
    )


def _as_object(checked: Checked, machine: Machine, host: Host, following: Sequence[str]) -> dict[str, object]:
    compiled = checked.compiled
    index = compiled.index
    costs = checked.cut_costs
    return {
        "model": compiled.model.name,
        "served": True,
        "inputs": [_tensor_object(spec) for spec in index.inputs],
        "outputs": [_tensor_object(spec) for spec in index.outputs],
        "shapes": [
            {spec.name: list(spec.shape) for spec in compiled_shape.index.inputs} for compiled_shape in compiled.each
        ],
        "weight_bytes": checked.weight_bytes,
        "operators": len(compiled.model.graph.operators),
        "layers": len(compiled.layers),
        "heaviest": [
            {"index": layer.index, "name": layer.name, "op": layer.op, "share": share}
            for layer, share in checked.heaviest[:_MOST_HEAVY]
        ],
        "machine": machine.name,
        "host": host_object(*host),
        "places": [place.name for place in machine.places],
        "devices": list(checked.devices),
        "engine": index.engine,
        "form": index.form,
        "cuts": {
            "legal": len(costs),
            "all": len(compiled.layers) - 1,
            "least": _cut_object(costs[0]) if costs else None,
            "most": _cut_object(costs[-1]) if costs else None,
        },
        "batches": {"one_frame_at_a_time": one_frame_at_a_time(index.mixing)},
        "engines": [
            {**msgspec.to_builtins(trial), "why_not": why_not(trial)}
            for trial in (checked.engines.engines if checked.engines else ())
        ],
        "odd": list(checked.odd),
        "next": list(following),
    }


def _tensor_object(spec: Tensor) -> dict[str, object]:
    """An input or output; a size of -1 depends on the data, as in `model_metadata`."""
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.sizes}


def _cut_object(cut_cost: CutCost) -> dict[str, int]:
    return {"cut": cut_cost.cut, "tensors": cut_cost.tensors, "bytes": cut_cost.size_bytes}


# One screen


def _print(checked: Checked, machine: Machine, host: Host, following: Sequence[str]) -> None:
    width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns)
    for head, lines in _rows(checked, machine, host):
        for line in lines:
            body = textwrap.wrap(line, width - _HEAD_WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
            for part in body:
                print(f"{head:<{_HEAD_WIDTH}}{part}".rstrip())
                head = ""
    for head, command in zip(("next", *[""] * len(following)), following, strict=False):
        print(f"{head:<{_HEAD_WIDTH}}{command}")  # not wrapped, so that it can be copied


def _rows(checked: Checked, machine: Machine, host: Host) -> Iterator[tuple[str, Sequence[str]]]:
    from shisha_rt.model.batches import batches_in_words

    compiled = checked.compiled
    index, costs = compiled.index, checked.cut_costs
    yield "model", [compiled.model.name]
    for number, compiled_shape in enumerate(compiled.each):
        yield (
            f"inputs {number}" if len(compiled.each) > 1 else "inputs",
            _listed(map(_in_words, compiled_shape.index.inputs)),
        )
    yield "outputs", _listed(map(_in_words, index.outputs))
    operators = len(compiled.model.graph.operators)
    yield "weights", [f"{short(checked.weight_bytes, 'B')}; {counted(operators, 'operator')} in "
                      f"{counted(len(compiled.layers), 'layer')}{_heaviest(checked.heaviest)}"]  # fmt: skip
    yield "machine", [f"{machine.name}: {', '.join(_listed([place.name for place in machine.places]))}"]
    yield "host", host_in_words(*host)
    if checked.devices:
        yield "engine", [f"devices {', '.join(checked.devices)}; stages are cut from the model as it was read"]
    else:
        yield "engine", [f"{index.engine}; compiled form: {form_in_words(index.form)}"]
    passing = ""
    if costs:
        passing = f"; {_at(costs[0])} at the least, {_at(costs[-1])} at the most"
    yield "cuts", [f"{len(costs)} of {len(compiled.layers) - 1} legal{passing}"]
    yield "batches", [batches_in_words(index.mixing)]
    if checked.engines is not None:
        yield "engines", list(_engines(checked.engines))
    if checked.odd:
        yield "odd", checked.odd


def _in_words(spec: Tensor) -> str:
    sizes = ("?" if axis in spec.open_axes else str(size) for axis, size in enumerate(spec.shape))
    return f"{spec.name} {spec.datatype} {'x'.join(sizes) or 'scalar'}"


def _listed(texts: Iterable[str]) -> list[str]:
    parts = list(texts)
    more = len(parts) - _MOST_LISTED
    return parts[:_MOST_LISTED] + ([f"and {more} more"] if more > 0 else [])


def _heaviest(heaviest: Sequence[tuple[Layer, float]]) -> str:
    """The heaviest layers' shares; only the first is named, as names may be long paths."""
    if not heaviest:
        return ""
    layer, share = heaviest[0]
    others = "".join(f", then {share:.0%}" for _, share in heaviest[1:_MOST_HEAVY] if share >= _LEAST_SHARE)
    return f"; the heaviest layer, {layer.index} ({layer.name}), has {share:.0%} of their weight{others}"


def _at(cut_cost: CutCost) -> str:
    return f"{counted(cut_cost.tensors, 'tensor')} of {short(cut_cost.size_bytes, 'B')} (cut {cut_cost.cut})"


def _engines(tried: EnginesTried) -> Iterator[str]:
    """Yield a line for each engine, installed or not."""
    for trial in tried.engines:
        reason = why_not(trial)
        yield f"{trial.engine} {trial.version}: {f'not for this network: {reason}' if reason else _times(trial, tried)}"
    for engine in ENGINES:
        if is_exact(engine) and tried.of(engine) is None:
            yield f"{engine} is not installed, and some networks are faster on it: {pip_install(engine)}"
    times_s = [trial.time_s(1) for trial in tried.engines if not why_not(trial)]
    if min((time_s for time_s in times_s if time_s is not None), default=math.inf) < _SMALL_S:
        yield "client and daemon take longer for a frame than that: an engine in your own process is faster"
    if tried.others_ratio > DISTURBED:
        yield (
            f"other programs had {tried.others_ratio:.0%} of the cores meanwhile: these times may be too long; "
            "a daemon with this model measures it again when the host is calm"
        )


def _times(trial: EngineTrial, tried: EnginesTried) -> str:
    times = []
    for time in trial.times:
        of_one = milliseconds(trial.time_s(time.threads) or 0.0)
        is_ahead = " (best)" if ahead(tried, time.threads) == trial.engine else ""
        times.append(f"{of_one} on {counted(time.threads, 'thread')}{is_ahead}")
    if not is_exact(trial.engine):
        return f"{', '.join(times)}; answers change by up to {trial.difference or 0.0:.1e}: only with --precision any"
    return ", ".join(times) + _together(trial) + _apart(trial)


def _together(trial: EngineTrial) -> str:
    return "".join(
        f"; {milliseconds(time.frame_s)} a frame in runs of {time.frames} ({time.gain:.2f} times as many)"
        for time in trial.batch_times
    )


def _apart(trial: EngineTrial) -> str:
    parts = [] if trial.difference is None else [f"answers within {trial.difference:.1e} of ONNX Runtime's"]
    if (trial.difference or 0.0) > MOST_APART:
        parts[0] += ", which change by as much with inputs that differ in their last bits"
    parts += [] if trial.unlike is None else [f"{trial.unlike:.2%} of integers differ"]
    return "".join(f"; {part}" for part in parts)
