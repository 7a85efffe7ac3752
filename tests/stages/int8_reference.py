"""What int8 devices compute, in numpy's 64-bit integers and operator by operator: written apart from the engine's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from shisha_rt.messages.scales import read_scales, scales_file
from stages.built.clean_model import CleanModel
from stages.engines.evaluate import evaluate
from tests.model.networks import Array

Ints = npt.NDArray[np.int64]


def computed_by_hand(model: CleanModel, feeds: Mapping[str, Array], in_int8: Sequence[bool]) -> dict[str, Array]:
    """Every tensor's values, where the operators `in_int8` are on such a device and others on the engine."""
    scales = read_scales(model.folder, scales_file())
    assert scales is not None
    values = dict(feeds)
    for index, node in enumerate(onnx.load(model.folder / "clean.onnx", load_external_data=False).graph.node):
        constants = {name: model.array(name) for name in node.input if name in model.graph.constants}
        if in_int8[index]:
            made = [_in_int8(node, values[node.input[0]], constants, scales)]
        else:
            made = _in_float(model, node, values, constants)
        values |= dict(zip(node.output, made, strict=True))
    return values


def nearest(values: Array, exponent: int) -> Ints:
    scaled = np.asarray(values, np.float64) / 2.0**exponent
    return np.clip(np.round(scaled), -127, 127).astype(np.int64)  # numpy's goes to the even


def power_above(largest: float, steps: int) -> int:
    return math.ceil(math.log2(largest / steps)) if largest else 0


def _in_int8(node: onnx.NodeProto, read: Array, constants: Mapping[str, Array], scales: Mapping[str, int]) -> Array:
    image, exponent = nearest(read, scales[node.input[0]]), scales[node.output[0]]
    if node.op_type == "Relu":
        return (np.maximum(image, 0) * 2.0**exponent).astype(np.float32)
    kernel, of_image = constants[node.input[1]], scales[node.input[0]]
    bias = constants[node.input[2]] if len(node.input) > 2 else np.zeros(len(kernel))
    filters = []
    for weights, b in zip(kernel, map(abs, bias.tolist()), strict=True):
        of_weights = power_above(float(np.abs(weights).max()), 127)
        filters.append(max(of_weights, power_above(b, 2**30) - of_image) if b else of_weights)
    sums = convolved(node, image, np.stack([nearest(weights, n) for weights, n in zip(kernel, filters, strict=True)]))
    made = []
    for channel_sums, b, of_filter in zip(np.moveaxis(sums, 1, 0), bias.tolist(), filters, strict=True):
        in_sums = channel_sums + round(b / 2.0 ** (of_image + of_filter))
        assert np.abs(in_sums).max(initial=0) < 2**31
        made.append(nearest(in_sums, exponent - of_image - of_filter))
    return (np.stack(made, axis=1) * 2.0**exponent).astype(np.float32)


def convolved(node: onnx.NodeProto, image: Ints, kernel: Ints) -> Ints:
    """(batch, channels, ...) with (filters, channels of a group, ...), by ONNX's definition of Conv."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    rank, group = kernel.ndim - 2, attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel.shape[2:], dilations, strict=True)]
    pads = attributes.get("pads", [0] * 2 * rank)
    if attributes.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        short = [
            max((-(-size // step) - 1) * step + its_reach - size, 0)
            for size, step, its_reach in zip(image.shape[2:], strides, reach, strict=True)
        ]
        less, more = [n // 2 for n in short], [n - n // 2 for n in short]
        pads = [*less, *more] if attributes["auto_pad"] == b"SAME_UPPER" else [*more, *less]
    image = np.pad(image, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    sizes = [(size - r) // step + 1 for size, r, step in zip(image.shape[2:], reach, strides, strict=True)]
    filters = len(kernel) // group
    image = image.reshape(len(image), group, -1, *image.shape[2:])
    kernel = kernel.reshape(group, filters, *kernel.shape[1:])
    sums = np.zeros((len(image), group, filters, *sizes), np.int64)
    for at in itertools.product(*map(range, kernel.shape[3:])):
        steps = zip(at, dilations, sizes, strides, strict=True)
        seen: Any = (..., *(slice(i * d, i * d + (size - 1) * step + 1, step) for i, d, size, step in steps))
        tap: Any = (..., *at)
        its_image: Any = image[seen]
        sums += np.einsum("bgc...,gfc->bgf...", its_image, kernel[tap])
    return sums.reshape(len(image), group * filters, *sizes)


def _in_float(
    model: CleanModel, node: onnx.NodeProto, values: Mapping[str, Array], constants: Mapping[str, Array]
) -> list[Any]:
    graph = onnx.GraphProto(
        name="one",
        node=[node],
        initializer=[numpy_helper.from_array(np.array(value), name) for name, value in constants.items()],
        input=[
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
            for name in dict.fromkeys(node.input)
            if name in values
        ],
        output=[onnx.ValueInfoProto(name=name) for name in node.output],
    )
    whole = onnx.load(model.folder / "clean.onnx", load_external_data=False)
    alone = onnx.ModelProto(ir_version=whole.ir_version, opset_import=whole.opset_import, graph=graph)
    return evaluate(alone.SerializeToString(), {value.name: values[value.name] for value in graph.input})
