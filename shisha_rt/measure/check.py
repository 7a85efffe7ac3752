"""Check of a model on a machine before anything is started: what will work, and what is odd about it.

The model is read and compiled as for serving, and each installed engine runs it. The results are stored for the next
start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

import onnx

from shisha_rt.costs.engine_trials import EnginesTried
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.device_files import running_devices
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import Tell, compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.engines import engines_tried
from shisha_rt.measure.make_ready import check_static, make_ready
from shisha_rt.measure.sitting import Sitting
from shisha_rt.model.graph import Graph
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.layers import Layer
from shisha_rt.model.reader.external_data import weight_datatype
from shisha_rt.model.reader.onnx_reader import Model, read_model
from shisha_rt.model.reader.onnx_versions import newest_that_all_take
from shisha_rt.model.subgraphs import all_graphs, all_nodes
from shisha_rt.tensors import size_bytes

_OLD_OPSET: Final = 11
_PRECISION: Final = "exact"
_CONTROL_FLOW: Final = ("If", "Loop", "Scan")
_ON_INTEGERS: Final = ("QLinear", "Quantize", "Dequantize", "DynamicQuantize", "QGemm", "MatMulInteger", "ConvInteger")
_UNWEIGHED: Final = ("Attention", "GRU", "GroupQueryAttention", "LSTM", "MultiHeadAttention", "RNN")
"""Operators that compute much, but have no weight by Eq. 1."""
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class CutCost:
    """Number and total bytes of the tensors that pass at a legal cut."""

    cut: int
    tensors: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check. `devices`: names of the devices that run; empty if places have none.

    `engines`: each installed engine's trial of the whole network; None if places have devices. `odd`: see `oddities`.
    """

    compiled: Compiled
    file: Model
    devices: tuple[str, ...]
    engines: EnginesTried | None
    odd: tuple[str, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants, including those in subgraphs and attributes."""
        return weight_bytes_within(self.file.proto.graph)

    @property
    def heaviest(self) -> tuple[tuple[Layer, float], ...]:
        """Layers and their shares of the total weight, the heaviest first; empty without heavy operators."""
        return heaviest_layers(self.compiled.layers)

    @property
    def cut_costs(self) -> tuple[CutCost, ...]:
        """Costs of each legal cut, the one with the fewest bytes first."""
        costs = []
        for cut in self.compiled.index.legal_cuts:
            passing = [entry.tensor for entry in self.compiled.index.crossing if entry.made <= cut < entry.last_read]
            costs.append(CutCost(cut, len(passing), sum(tensor.size_bytes for tensor in passing)))
        return tuple(sorted(costs, key=lambda cost: (cost.size_bytes, cost.cut)))


def check_model(path: Path, machine: Machine, sizes: Sequence[InputSizes], tell: Tell) -> Checked:
    """Check the model at `path`. Raises BadInput for what serving would refuse, Failure if the engine fails."""
    devices = dict.fromkeys(
        running_device.name
        for place in machine.places
        for running_device in running_devices(machine, place, _PRECISION)
    )
    if devices and len(sizes) == 1:
        compiled = compile_model(path, sizes[0], tell, plain="heavy")
        check_static(compiled.model.graph, str(path), machine)
    elif devices:
        raise BadInput(
            f"{path}: {len(sizes)} shapes, expected one, as places of {machine.source} have devices", Error.WRONG_SIZES
        )
    else:
        compiled = make_ready(path, machine, sizes=sizes, on_progress=tell).compiled
    file = compiled.model
    if not isinstance(file, Model) or file.is_saved:  # `found_out` is filled only by reading the file itself
        file = read_model(path, sizes[0])
    engines = None if devices else engines_tried(compiled, machine, Sitting(tell), precision="any")
    return Checked(compiled, file, tuple(devices), engines, tuple(oddities(compiled, file)))


def weight_bytes_within(graph: onnx.GraphProto) -> int:
    weights = [weight for each in all_graphs(graph) for weight in each.initializer]
    weights += [
        attribute.t for node in all_nodes(graph.node) for attribute in node.attribute if attribute.HasField("t")
    ]
    return sum(size_bytes(weight_datatype(weight), weight.dims) for weight in weights)


def heaviest_layers(layers: Sequence[Layer]) -> tuple[tuple[Layer, float], ...]:
    total = sum(layer.weight for layer in layers)
    ordered = sorted((layer for layer in layers if layer.weight), key=lambda layer: -layer.weight)
    return tuple((layer, layer.weight / total) for layer in ordered)


# What is odd


def oddities(compiled: Compiled, file: Model) -> Iterator[str]:
    """Yield a line for each thing that may surprise a user; nothing for an everyday network."""
    yield from _of_the_data(compiled)
    yield from _of_operators(compiled.model.graph)
    yield from _of_the_file(file)
    yield from _of_cuts(compiled)


def _of_the_data(compiled: Compiled) -> Iterator[str]:
    outputs = [spec.name for spec in compiled.index.outputs if spec.open_axes]
    inner = [t for t in compiled.model.graph.tensors.values() if t.open_axes and t.name not in outputs]
    if outputs:
        yield f"as large as the data makes it, within --max-output-bytes: output {_named(outputs)}"
    if inner:
        yield f"tensors inside as large as the data makes them, which no cut parts: {len(inner)}"


def _of_operators(graph: Graph) -> Iterator[str]:
    control, unweighed = _counted(graph, _CONTROL_FLOW), _counted(graph, _UNWEIGHED)
    if control:
        yield f"control flow: {control}, each one operator with all that is inside, never cut"
    if unweighed:
        yield f"weights of layers leave out what these take: {unweighed} (shisha-rt costs measures it)"
    integers = sum(operator.op_type.startswith(_ON_INTEGERS) for operator in graph.operators)
    if integers:
        yield f"int8: {integers} operators on integers, or between them and reals"


def _counted(graph: Graph, op_types: Sequence[str]) -> str:
    counts = Counter(operator.op_type for operator in graph.operators if operator.op_type in op_types)
    return ", ".join(f"{count} {op_type}" for op_type, count in counts.items())


def _of_the_file(file: Model) -> Iterator[str]:
    found_out = file.found_out
    opset = next(opset_import.version for opset_import in file.proto.opset_import if not opset_import.domain)
    if opset < _OLD_OPSET:
        yield f"opset {opset} is old: engines promise 7 and newer"
    if opset > newest_that_all_take():
        yield f"opset {opset} is new: not every engine takes more than {newest_that_all_take()}"
    if found_out.seen:
        yield f"tensors whose shape only a run of the model told: {len(found_out.seen)}"
    for dim in found_out.dims:
        if dim.source == "batch":
            yield f"dynamic batch axis {dim.name!r} fixed to 1; change with --dim {quote(f'{dim.name}=8')}"
        if dim.source == "model":
            yield f"dimension {dim.name!r} is {dim.size}, as the model suggests (--dim sets another)"
    if found_out.unread:
        yield f"no operator reads it, so that frames come without: input {_named(found_out.unread)}"


def _of_cuts(compiled: Compiled) -> Iterator[str]:
    heaviest = heaviest_layers(compiled.layers)
    if len(compiled.layers) == 1:
        yield f"nothing to cut: {'one heavy operator' if heaviest else 'no heavy operator'}"
    elif not compiled.legal_cuts:
        yield f"nothing to cut: none of {len(compiled.layers) - 1} cuts is legal"
    elif heaviest and heaviest[0][1] > 0.5 and not _counted(compiled.model.graph, _UNWEIGHED + _CONTROL_FLOW):
        layer, share = heaviest[0]
        yield (
            f"layer {layer.index} ({layer.name}) has {share:.0%} of the weight: "
            f"by cuts alone at most {1 / share:.1f} times the frames of one place"
        )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(repr, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
