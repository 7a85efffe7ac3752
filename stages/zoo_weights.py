"""Give a zoo network weights that make its answers depend on its input: `python -m stages.zoo_weights SRC DST`.

Random weights alone prove nothing: with He's scale alone ResNet-50, ShuffleNet and DenseNet-121 answer (nearly) the
same to whatever they are shown. So the network runs once, operator by operator, on one seeded input, and each
operator's weights are set from what really reaches it, before the next one runs. What is random comes from a
generator seeded with the file's name, so a network is the same wherever it is built.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from shisha_rt.graph.clean import fold_constants
from stages.engines.evaluate import evaluate

Array = npt.NDArray[Any]

LOGITS_STD: Final = 2.0
_TILE: Final = 32  # pixels
_MIN_SAMPLES: Final = 16  # with fewer values in a channel, the statistics of the whole tensor say more
_MIN_STD: Final = 1e-6  # a channel without any variance is left as it is
_IR_VERSION: Final = 8  # this package may be newer than the engine


def build(source: Path, target: Path) -> None:
    """Read the network at `source`, give it weights, write it to `target` as one file."""
    model = fold_constants(onnx.load(source))
    weights = _Calibration(model.graph, model.opset_import, _generator(target.stem)).run()
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights.pop(tensor.name), tensor.name))
    onnx.save(model, target)


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


class _Calibration:
    """One pass over the operators, in order.

    `weights` are the constants set so far, `values` the tensors of run time that are still to be read.
    """

    def __init__(self, graph: onnx.GraphProto, opsets: Iterable[onnx.OperatorSetIdProto], rng: np.random.Generator):
        self._nodes = list(graph.node)
        self._opsets = list(opsets)
        self._rng = rng
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._runtime_inputs = [value for value in graph.input if value.name not in self._constants]
        self._last_heavy = [node for node in self._nodes if node.op_type in ("Conv", "Gemm")][-1]
        self._weights: dict[str, Array] = {}
        self._values: dict[str, Array] = {}

    def run(self) -> dict[str, Array]:
        """New values, by name, of all the constants that are weights."""
        self._draw_inputs()
        logits = np.zeros(())
        last_read = {name: index for index, node in enumerate(self._nodes) for name in node.input}
        for index, node in enumerate(self._nodes):
            if node.op_type == "Softmax":
                break
            self._set_weights(node)
            self._values |= zip(node.output, self._evaluate(node), strict=True)
            logits = self._values[node.output[0]]
            self._values = {name: value for name, value in self._values.items() if last_read.get(name, 0) > index}
        self._scale_logits(float(logits.std()))
        return self._weights

    def _draw_inputs(self) -> None:
        for value in self._runtime_inputs:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            self._values[value.name] = _patchwork(self._rng, shape)

    def _set_weights(self, node: onnx.NodeProto) -> None:
        match node.op_type:
            case "Conv":
                self._set_heavy(node, filter_axis=0)
            case "Gemm":
                transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
                self._set_heavy(node, filter_axis=0 if transposed else 1)
            case "BatchNormalization":
                self._set_normalization(node)
            case "Mul":
                self._set_scale(node.input[1])
            case "Add":
                self._set_shift(node.input[1])

    def _set_heavy(self, node: onnx.NodeProto, filter_axis: int) -> None:
        """He's weights, then rescaled to outputs of unit variance, and of zero mean where there is a bias.

        The last heavy operator is rescaled as a whole: what tells its classes apart is the difference of their
        means, as some networks average over all positions behind it.
        """
        shape = list(self._constants[node.input[1]].dims)
        weight = self._rng.standard_normal(shape, np.float32)
        weight *= np.float32(math.sqrt(2.0 * shape[filter_axis] / weight.size))
        biases = {name: np.zeros(self._constants[name].dims, np.float32) for name in node.input[2:]}
        self._weights |= {node.input[1]: weight} | biases
        mean, std = _statistics(self._evaluate(node)[0], per_channel=node is not self._last_heavy)
        by_filter = np.moveaxis(weight, filter_axis, -1)
        by_filter /= std
        for bias in biases.values():
            bias -= mean / std

    def _set_normalization(self, node: onnx.NodeProto) -> None:
        """Mean and variance as observed."""
        source, scale, shift, mean, variance = node.input
        self._set_scale(scale)
        self._set_shift(shift)
        seen_mean, seen_std = _statistics(self._values[source], per_channel=True)
        shape = tuple(self._constants[mean].dims)
        self._weights[mean] = np.broadcast_to(seen_mean, shape)
        self._weights[variance] = np.broadcast_to(np.square(seen_std), shape)

    def _set_scale(self, name: str) -> None:
        self._weights[name] = self._rng.uniform(0.8, 1.2, self._constants[name].dims).astype(np.float32)

    def _set_shift(self, name: str) -> None:
        self._weights[name] = self._rng.normal(0.0, 0.1, self._constants[name].dims).astype(np.float32)

    def _scale_logits(self, std: float) -> None:
        """What follows the last heavy operator (ReLU, pooling) passes a positive factor on as it is."""
        for name in self._last_heavy.input[1:]:
            self._weights[name] *= np.float32(LOGITS_STD / std)

    def _evaluate(self, node: onnx.NodeProto) -> list[Array]:
        """The operator's outputs. Its weights are fed, not embedded, which saves copies of up to 411 MB."""
        feeds = {name: self._value(name) for name in dict.fromkeys(node.input)}
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        ]
        outputs = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
        graph = helper.make_graph([node], "one_operator", inputs, outputs)
        model = helper.make_model(graph, opset_imports=self._opsets, ir_version=_IR_VERSION)
        return evaluate(model.SerializeToString(), feeds)

    def _value(self, name: str) -> Array:
        for known in (self._weights, self._values):
            if name in known:
                return known[name]
        return numpy_helper.to_array(self._constants[name])


def _patchwork(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """A (batch, channels, height, width) picture of zero mean and unit variance: tiles, each with its own noise level.

    On noise alone the network would be blind to means, and a smooth picture would drive its answers to extremes.
    """
    *channels, height, width = shape
    tiles = (*channels, -(-height // _TILE), -(-width // _TILE))
    mean, noise_level = (
        np.kron(rng.standard_normal(tiles), np.ones((_TILE, _TILE)))[..., :height, :width] for _ in range(2)
    )
    picture = mean + noise_level * rng.standard_normal(shape)
    return np.asarray(picture / picture.std(), np.float32)


def _statistics(values: Array, *, per_channel: bool) -> tuple[Array, Array]:
    """Mean and standard deviation: (channels,) each, or () where a channel has too few values, or on request."""
    few = values.size // values.shape[1] < _MIN_SAMPLES
    axes = None if few or not per_channel else (0, *range(2, values.ndim))
    mean, std = (np.asarray(found, np.float32) for found in (values.mean(axes), values.std(axes)))
    return mean, np.where(std > _MIN_STD, std, np.float32(1.0))


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    build(source, target)


if __name__ == "__main__":
    main()
