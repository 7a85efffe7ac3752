"""Give a zoo network weights that make its answers depend on its input: `python -m stages.jobs.zoo_weights DST < SRC`.

A test of answers needs more than random weights: with He's scale alone, ResNet-50, ShuffleNet and DenseNet-121 give
(nearly) the same answer to any input. So the network runs once, operator by operator, on one seeded input, and each
operator's weights are set from its actual inputs and outputs before the next one runs. Embeddings are normal with unit
variance. The random generator is seeded with the file's name, so a network is the same wherever it is built.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from shisha_rt.model.clean import fold_constants
from shisha_rt.model.default_dims import default_dims, set_default_dims
from shisha_rt.model.net import one_operator
from stages.engines.evaluate import evaluate

Array = npt.NDArray[Any]

LOGITS_STD: Final = 2.0
_TILE: Final = 32  # pixels
_MIN_SAMPLES: Final = 16  # with fewer values in a channel, the whole tensor's statistics are more reliable
_HEAVY: Final = ("Conv", "Gemm", "MatMul")
_PASS_A_FACTOR_ON: Final = frozenset(
    {"AveragePool", "Dropout", "Flatten", "GlobalAveragePool", "LeakyRelu", "MaxPool", "Relu", "Reshape"}
)
_MIN_STD: Final = 1e-6  # a channel without any variance is left as it is
_IR_VERSION: Final = 8  # the `onnx` package's own may be too new for the engine


def build(topology: onnx.ModelProto, target: Path) -> None:
    """Give the network weights, and write it to `target` as one file."""
    model = fold_constants(topology)
    sizes = default_dims(topology)
    set_default_dims(model, sizes)
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(target.stem.encode()).digest()[:8], "little"))
    weights = _Calibration(model.graph, model.opset_import, sizes, rng).run()
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights.pop(tensor.name), tensor.name))
    onnx.save(model, target)


class _Calibration:
    """One pass over the operators, in order.

    `_weights`: the constants set so far; `_values`: the run-time tensors that are still to be read; `_heads`: the heavy
    operator behind each output, by the tensor whose spread it determines (the output, or the logits before a Softmax).
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        opsets: Iterable[onnx.OperatorSetIdProto],
        sizes: Mapping[str, int],
        rng: np.random.Generator,
    ):
        self._nodes = list(graph.node)
        self._opsets = list(opsets)
        self._sizes = sizes
        self._rng = rng
        self._producers = {name: node for node in self._nodes for name in node.output}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._runtime_inputs = [value for value in graph.input if value.name not in self._constants]
        self._heads = self._find_heads(value.name for value in graph.output)
        self._weights: dict[str, Array] = {}
        self._values: dict[str, Array] = {}

    def run(self) -> dict[str, Array]:
        """New values of all constants that are weights, by name."""
        self._draw_inputs()
        last_read = {name: index for index, node in enumerate(self._nodes) for name in node.input}
        for index, node in enumerate(self._nodes):
            self._set_weights(node)
            self._values |= zip(node.output, self._evaluate(node), strict=True)
            for name in node.output:
                if name in self._heads:
                    self._scale_head(name)
            self._values = {name: value for name, value in self._values.items() if last_read.get(name, 0) > index}
        return self._weights

    def _find_heads(self, outputs: Iterable[str]) -> dict[str, onnx.NodeProto]:
        """Find the heavy operators that make the outputs. An output that is normalised, or a sum, has none."""
        heads = {}
        for output in outputs:
            node = self._producers[output]
            end = node.input[0] if node.op_type == "Softmax" else output
            node = self._producers[end]
            while node.op_type in _PASS_A_FACTOR_ON:
                node = self._producers[node.input[0]]
            if node.op_type in _HEAVY:
                heads[end] = node
        return heads

    def _draw_inputs(self) -> None:
        """Draw a picture for each input of floats; integers are 0 or 1, which are valid tokens, types and masks."""
        for value in self._runtime_inputs:
            tensor = value.type.tensor_type
            shape = [dim.dim_value or self._sizes[dim.dim_param] for dim in tensor.shape.dim]
            if tensor.elem_type == onnx.TensorProto.FLOAT:
                self._values[value.name] = _patchwork(self._rng, shape)
            else:
                self._values[value.name] = self._rng.integers(0, 2, shape)

    def _set_weights(self, node: onnx.NodeProto) -> None:
        match node.op_type:
            case "Conv":
                self._set_heavy(node, filter_axis=0)
            case "Gemm":
                transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
                self._set_heavy(node, filter_axis=0 if transposed else 1)
            case "MatMul" if self._is_weight(node.input[1]):
                self._set_heavy(node, filter_axis=1)
            case "BatchNormalization":
                self._set_normalization(node)
            case "Gather" if self._is_weight(node.input[0]):
                name = node.input[0]
                self._weights[name] = self._rng.standard_normal(self._constants[name].dims, np.float32)
            case "Mul" if self._is_weight(node.input[1]):
                self._set_scale(node.input[1])
            case "Add" if self._is_weight(node.input[1]):
                if self._producers[node.input[0]].op_type == "MatMul":
                    self._set_bias(node)
                else:
                    self._set_shift(node.input[1])

    def _is_weight(self, name: str) -> bool:
        """Whether a constant is a weight; a scalar is part of a formula."""
        return name in self._constants and len(self._constants[name].dims) > 0

    def _set_heavy(self, node: onnx.NodeProto, filter_axis: int) -> None:
        """Draw He's weights, rescale them to outputs of unit variance, and, if there is a bias, of zero mean.

        A head is rescaled as a whole, to keep the differences of its classes' means: some networks average over all
        positions behind it, so that only these differences are left.
        """
        shape = list(self._constants[node.input[1]].dims)
        weight = self._rng.standard_normal(shape, np.float32)
        weight *= np.float32(math.sqrt(2.0 * shape[filter_axis] / weight.size))
        biases = {name: np.zeros(self._constants[name].dims, np.float32) for name in node.input[2:]}
        self._weights |= {node.input[1]: weight} | biases
        is_head = any(node is head for head in self._heads.values())
        mean, std = _statistics(self._evaluate(node)[0], None if is_head else _channel_axis(node))
        by_filter = np.moveaxis(weight, filter_axis, -1)
        by_filter /= std
        for bias in biases.values():
            bias -= mean / std

    def _set_normalization(self, node: onnx.NodeProto) -> None:
        source, scale, shift, mean, variance = node.input
        self._set_scale(scale)
        self._set_shift(shift)
        seen_mean, seen_std = _statistics(self._values[source], _channel_axis(node))
        shape = tuple(self._constants[mean].dims)
        self._weights[mean] = np.broadcast_to(seen_mean, shape)
        self._weights[variance] = np.broadcast_to(np.square(seen_std), shape)

    def _set_bias(self, node: onnx.NodeProto) -> None:
        """Set a bias for a zero mean, where the heavy operator before has no bias of its own."""
        mean, _ = _statistics(self._values[node.input[0]], _channel_axis(self._producers[node.input[0]]))
        self._weights[node.input[1]] = np.broadcast_to(-mean, tuple(self._constants[node.input[1]].dims))

    def _set_scale(self, name: str) -> None:
        self._weights[name] = self._rng.uniform(0.8, 1.2, self._constants[name].dims).astype(np.float32)

    def _set_shift(self, name: str) -> None:
        self._weights[name] = self._rng.normal(0.0, 0.1, self._constants[name].dims).astype(np.float32)

    def _scale_head(self, end: str) -> None:
        """Rescale the outputs by the head's weights: operators in between (ReLU, pooling) pass a positive factor on."""
        values = self._values[end]
        # The standard deviation of few values may be tiny by chance. Their mean is meant to be zero.
        std = values.std() if values.size >= _MIN_SAMPLES else np.sqrt(np.mean(np.square(values)))
        for name in self._heads[end].input[1:]:
            self._weights[name] *= np.float32(LOGITS_STD / float(std))

    def _evaluate(self, node: onnx.NodeProto) -> list[Array]:
        """The operator's outputs. Its weights are fed, not embedded, which saves copies of up to 411 MB."""
        feeds = {name: self._value(name) for name in dict.fromkeys(node.input)}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        ]
        model = one_operator(node, inputs, self._opsets, ir_version=_IR_VERSION)
        return evaluate(model.SerializeToString(), feeds)

    def _value(self, name: str) -> Array:
        for known in (self._weights, self._values):
            if name in known:
                return known[name]
        return numpy_helper.to_array(self._constants[name])


def _patchwork(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """A (batch, channels, height, width) picture of zero mean and unit variance: tiles, each with its own noise level.

    Weights set on noise alone would make a network that ignores means, and on a smooth picture one of extreme answers.
    """
    *channels, height, width = shape
    tiles = (*channels, -(-height // _TILE), -(-width // _TILE))
    mean, noise_level = (
        np.kron(rng.standard_normal(tiles), np.ones((_TILE, _TILE)))[..., :height, :width] for _ in range(2)
    )
    picture = mean + noise_level * rng.standard_normal(shape)
    return np.asarray(picture / picture.std(), np.float32)


def _channel_axis(node: onnx.NodeProto) -> int:
    return -1 if node.op_type == "MatMul" else 1


def _statistics(values: Array, channel_axis: int | None) -> tuple[Array, Array]:
    """Mean and standard deviation: (channels,) each, or () if a channel has too few values, or there is no such axis.

    With too few values in all they are 0 and 1, which keeps He's scale.
    """
    if values.size < _MIN_SAMPLES:
        return np.zeros((), np.float32), np.ones((), np.float32)
    axes = None
    if channel_axis is not None and values.size // values.shape[channel_axis] >= _MIN_SAMPLES:
        axes = tuple(axis for axis in range(values.ndim) if axis != channel_axis % values.ndim)
    mean, std = (np.asarray(statistic, np.float32) for statistic in (values.mean(axes), values.std(axes)))
    return mean, np.where(std > _MIN_STD, std, np.float32(1.0))


def main() -> None:
    build(onnx.load_model_from_string(sys.stdin.buffer.read()), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
