"""Random convolutions by their features, and each as a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_MACS: Final = 3e8
LEAST_MACS: Final = 1e5

Features = Mapping[str, int]


def convolutions(count: int, seed: int) -> list[Features]:
    """Draw convolutions: outputs of 7 to 112 rows and columns, 1 to 512 channels and filters, log-uniformly."""
    generator = Random(seed)
    found: list[Features] = []
    while len(found) < count:
        height = round(7 * 16 ** generator.random())
        features = {
            "H": height,
            "W": max(7, min(112, round(height * 2 ** generator.uniform(-1, 1)))),
            "C": round(2 ** generator.uniform(0, 9)),
            "k": generator.choice((1, 1, 3, 3, 3, 5, 7)),
            "N": round(2 ** generator.uniform(0, 9)),
            "s": generator.choice((1, 1, 2)),
        }
        if LEAST_MACS <= multiply_adds(features) <= MOST_MACS:
            found.append(features)
    return found


def multiply_adds(features: Features) -> int:
    return features["H"] * features["W"] * features["C"] * features["k"] ** 2 * features["N"]


def write_convolution(features: Features, path: Path) -> None:
    """Write one Conv with a bias, of one image with H s rows and W s columns, padded so that the output is H x W."""
    height, width, channels, kernel, filters, stride = (features[name] for name in ("H", "W", "C", "k", "N", "s"))
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((filters, channels, kernel, kernel), np.float32)
    bias = generator.standard_normal(filters, np.float32)
    before, after = divmod(max(0, kernel - stride), 2)
    pads = [before] * 2 + [before + after] * 2
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, strides=[stride] * 2, name="conv")
    shapes = {"x": (1, channels, height * stride, width * stride), "y": (1, filters, height, width)}
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items())
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph([node], "conv", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
