"""A network as OpenVINO reads it, for batches, if its operators keep frames apart (`model.batches`).

No file is written and no weight is read for that: the shapes of inputs, and those that Reshape operators state, are
changed in the engine's own graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from shisha_rt.model.batches import MixesFrames, follow_batch
from shisha_rt.model.free_batch import integers_of, open_shape
from shisha_rt.model.reader.onnx_reader import CLEAN_FILE, read_clean
from stages.engines.openvino.session import read_network


def network_of_frames(folder: Path, least: int, most: int) -> Any:
    """Read the cleaned model in `folder` as an `openvino.Model` for `least` to `most` frames, which may be equal.

    Raises MixesFrames if an operator mixes frames, ValueError if OpenVINO has replaced a Reshape by another operator,
    and whatever the engine raises.
    """
    import openvino

    graph = read_clean(folder)
    followed = follow_batch(graph, integers_of(onnx.load(folder / CLEAN_FILE, load_external_data=False).graph))
    for number, reason in followed.mixing.items():
        raise MixesFrames(f"operator {number}: {reason}")
    stated = {}
    for number, axis in followed.reshaped.items():
        name = graph.operators[number].outputs[0]
        stated[name] = open_shape(graph.tensors[name].shape, axis)
    network = read_network(folder / CLEAN_FILE)
    for operator in network.get_ordered_ops():
        if operator.get_type_name() == "Reshape":
            for name in operator.output(0).get_names() & stated.keys():
                shape = openvino.op.Constant(stated.pop(name))
                operator.input(1).replace_source_output(shape.output(0))
    if stated:
        raise ValueError(f"what makes {next(iter(stated))!r} is no Reshape to OpenVINO")
    shapes = {tensor.name: [openvino.Dimension(size) for size in tensor.shape] for tensor in graph.inputs}
    for shape_of_input in shapes.values():
        rows = shape_of_input[0].get_length()  # of a frame: 1, unless the model was exported for several
        shape_of_input[0] = openvino.Dimension(least * rows, most * rows)
    network.reshape({name: openvino.PartialShape(shape) for name, shape in shapes.items()})
    return network
