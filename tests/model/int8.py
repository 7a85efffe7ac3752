"""Small networks of 8-bit integers, as quantisers write them, and zoo networks that one has quantised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx.helper import make_node
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from tests.model.networks import Array, weight

SCALE = np.float32(0.05)
STEP = float(SCALE)
"""Between two values of each small network's output."""

_OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


class Parts:
    """Nodes and constants of a network whose tensors all have one scale, and zero in the middle of their range."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {"scale": np.asarray(SCALE), "zero": np.asarray(128, np.uint8)}

    def add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(make_node(op_type, inputs, [output], output, **attributes))
        return output

    def constant(self, name: str, value: Array) -> str:
        self.constants[name] = value
        return name

    def quantized(self, tensor: str) -> str:
        return self.add("QuantizeLinear", [tensor, "scale", "zero"], f"{tensor}_q")

    def floats(self, tensor: str) -> str:
        return self.add("DequantizeLinear", [tensor, "scale", "zero"], f"{tensor}_dq")

    def rounded(self, tensor: str) -> str:
        return self.floats(self.quantized(tensor))

    def weight(self, name: str, *shape: int) -> tuple[str, str, str]:
        """Names of its integers, of its scales (one for each filter) and of their zeros."""
        filters = shape[0]
        values = np.random.default_rng(len(self.constants)).integers(-127, 128, shape).astype(np.int8)
        return (
            self.constant(name, values),
            self.constant(f"{name}_scale", np.linspace(0.001, 0.003, filters, dtype=np.float32)),
            self.constant(f"{name}_zero", np.zeros(filters, np.int8)),
        )

    def weight_floats(self, name: str, *shape: int) -> str:
        return self.add("DequantizeLinear", self.weight(name, *shape), f"{name}_dq", axis=0)

    def network(self, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
        made, given = (
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
            for shapes in (outputs, inputs)
        )
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "int8", given, made, constants)
        return helper.make_model(graph, opset_imports=_OPSETS, ir_version=8)


def qdq_network() -> onnx.ModelProto:
    """Two convolutions with a sum around the second, then a product; the sum is an output too.

    The first convolution's result is read three times as the same floats: by both others and the sum.
    """
    net = Parts()
    weights = [net.weight_floats(name, 8, channels, 3, 3) for name, channels in (("w0", 4), ("w1", 8), ("w2", 8))]
    first = net.rounded(net.add("Relu", [net.add("Conv", [net.rounded("x"), weights[0]], "a", pads=[1] * 4)], "ra"))
    second = net.rounded(net.add("Conv", [first, weights[1]], "b", pads=[1] * 4))
    third = net.rounded(net.add("Conv", [first, weights[2]], "c", pads=[1] * 4))
    total = net.rounded(net.add("Sum", [second, third, first], "d"))
    flat = net.rounded(net.add("Flatten", [net.add("GlobalAveragePool", [total], "e")], "f"))
    product = net.add("Gemm", [flat, net.weight_floats("w3", 5, 8)], "g", transB=1)
    net.add("Identity", [net.rounded(product)], "y")
    net.add("Identity", [total], "sum")
    return net.network({"x": [1, 4, 8, 8]}, {"y": [1, 5], "sum": [1, 8, 8, 8]})


def qoperator_network() -> onnx.ModelProto:
    """Two convolutions, the second in groups, and a product: operators on integers, between floats at both ends."""
    net = Parts()
    x = net.quantized("x")
    for name, channels, groups in (("a", 4, 1), ("b", 2, 4)):
        weights = net.weight(f"{name}_w", 8, channels, 3, 3)
        bias = net.constant(f"{name}_b", np.arange(8, dtype=np.int32))
        inputs = [x, "scale", "zero", *weights, "scale", "zero", bias]
        x = net.add("QLinearConv", inputs, name, pads=[1] * 4, group=groups)
    flat = net.add("Flatten", [x], "flat")
    right = net.constant("m_w", np.random.default_rng(0).integers(-127, 128, (512, 5)).astype(np.int8))
    scale, zero = net.constant("m_scale", np.array(0.002, np.float32)), net.constant("m_zero", np.array(0, np.int8))
    net.floats(net.add("QLinearMatMul", [flat, "scale", "zero", right, scale, zero, "scale", "zero"], "m"))
    return net.network({"x": [1, 4, 8, 8]}, {"m_dq": [1, 5]})


def dynamic_network() -> onnx.ModelProto:
    """A convolution and a product whose inputs are quantised by what comes."""
    net = Parts()
    x = "x"
    for name, op_type, shape in (("a", "ConvInteger", (6, 4, 3, 3)), ("b", "MatMulInteger", (4, 5))):
        net.nodes.append(make_node("DynamicQuantizeLinear", [x], [f"{name}_q", f"{name}_s", f"{name}_z"], f"{name}_q"))
        values = np.random.default_rng(len(shape)).integers(-127, 128, shape).astype(np.int8)
        sums = net.add(op_type, [f"{name}_q", net.constant(f"{name}_w", values), f"{name}_z"], f"{name}_i")
        x = net.add("Mul", [net.add("Cast", [sums], f"{name}_f", to=TensorProto.FLOAT), f"{name}_s"], f"{name}_y")
    return net.network({"x": [1, 4, 8, 6]}, {"b_y": [1, 6, 6, 5]})


class _Noise(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self._samples: Iterator[dict[str, Array]] = iter([{name: weight(*shape, seed=seed)} for seed in range(2)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._samples, None)


def quantized_zoo(name: str, form: str, folder: Path) -> Path:
    """A zoo network, quantised by ONNX Runtime's own tool; `form`: "QDQ" or "QOperator"."""
    model = read_model(zoo_path(name))
    (tensor,) = model.graph.inputs
    floats, target = folder / f"{name}.onnx", folder / f"{name}_{form}.onnx"
    onnx.save(version_converter.convert_version(model.proto, 17), floats)
    quantize_static(
        floats,
        target,
        _Noise(tensor.name, tensor.shape),
        quant_format=QuantFormat[form],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return target
