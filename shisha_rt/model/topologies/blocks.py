"""Building blocks of several networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.model.topologies.network import Network

_EPSILON: Final = 1e-5


class Image(NamedTuple):
    """A tensor (1, channels, height, width), by its name."""

    name: str
    channels: int


class Kernel(NamedTuple):
    """A square one. By default half of its size is padding: height and width stay, or are divided by the stride."""

    size: int
    stride: int = 1
    padding: int | None = None
    groups: int = 1


def conv(net: Network, x: Image, channels: int, kernel: Kernel) -> Image:
    """Add a Conv with a bias."""
    return Image(_convolved(net, x, kernel, _filters(net, x, channels, kernel), net.weight(channels)), channels)


def normalized_conv(net: Network, x: Image, channels: int, kernel: Kernel) -> Image:
    """Add a Conv without a bias, then BatchNormalization."""
    made = _convolved(net, x, kernel, _filters(net, x, channels, kernel))
    return Image(net.add("BatchNormalization", made, *(net.weight(channels) for _ in range(4))), channels)


def _filters(net: Network, x: Image, channels: int, kernel: Kernel) -> str:
    return net.weight(channels, x.channels // kernel.groups, kernel.size, kernel.size)


def _convolved(net: Network, x: Image, kernel: Kernel, *weights: str) -> str:
    pads = [kernel.size // 2 if kernel.padding is None else kernel.padding] * 4
    grouped = {"group": kernel.groups} if kernel.groups > 1 else {}
    sizes = {"kernel_shape": [kernel.size] * 2, "strides": [kernel.stride] * 2}
    return net.add("Conv", x.name, *weights, **sizes, pads=pads, **grouped)


def relu(net: Network, x: Image) -> Image:
    return x._replace(name=net.add("Relu", x.name))


def max_pool(net: Network, x: Image, kernel: int, *, padding: int = 0) -> Image:
    """Add a MaxPool with a stride of 2."""
    return x._replace(name=net.add("MaxPool", x.name, kernel_shape=[kernel] * 2, strides=[2, 2], pads=[padding] * 4))


def enlarge(net: Network, x: str, shape: Sequence[int]) -> str:
    """Enlarge `x` to `shape` by repeating values."""
    unused = net.constant([], np.float32)  # a region and scale factors
    return net.add("Resize", x, unused, unused, net.constant(shape), mode="nearest")


def fully_connected(net: Network, x: str, features_in: int, features_out: int) -> str:
    """(1, features in) to (1, features out), by a Gemm with B transposed, as PyTorch stores its weights."""
    return net.add("Gemm", x, net.weight(features_out, features_in), net.weight(features_out), transB=1)


def layer_norm(net: Network, x: str, width: int) -> str:
    """(..., width), normalised over the last axis, then scaled and shifted (Ba et al., 2016).

    In nine operators, as exporters write it up to opset 16, in which ONNX has no operator for it.
    """
    with net.scope("norm"):
        centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
        variance = net.add("ReduceMean", net.add("Pow", centred, net.scalar(2)), axes=[-1])
        deviation = net.add("Sqrt", net.add("Add", variance, net.scalar(_EPSILON)))
        scaled = net.add("Mul", net.add("Div", centred, deviation), net.weight(width))
        return net.add("Add", scaled, net.weight(width))


def positions(net: Network, numbers: str, length: str, rows: int, width: int) -> str:
    """Embeddings (1, sequence, width) of the first `length` of `numbers` (1, most), from a table of `rows`."""
    end = net.add("Unsqueeze", length, axes=[0])
    used = net.add("Slice", numbers, net.constant([0]), end, net.constant([1]))
    return net.add("Gather", net.weight(rows, width), used)
