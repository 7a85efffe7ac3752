"""Building blocks of several networks. Images are (1, channels, height, width)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from shisha_rt.model.topologies.network import Network

_EPSILON: Final = 1e-5


def conv(
    net: Network,
    x: str,
    channels_in: int,
    channels_out: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int | None = None,
    groups: int = 1,
    bias: bool = True,
) -> str:
    """Add a Conv with a square kernel. By default half of it is padding: sizes stay, or are divided by the stride."""
    pads = [kernel // 2 if padding is None else padding] * 4
    weights = [net.weight(channels_out, channels_in // groups, kernel, kernel)]
    if bias:
        weights.append(net.weight(channels_out))
    grouped = {"group": groups} if groups > 1 else {}
    return net.add("Conv", x, *weights, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, **grouped)


def normalized_conv(
    net: Network, x: str, channels_in: int, channels_out: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> str:
    """Add a Conv without a bias, then BatchNormalization."""
    x = conv(net, x, channels_in, channels_out, kernel, stride=stride, groups=groups, bias=False)
    return net.add("BatchNormalization", x, *(net.weight(channels_out) for _ in range(4)))


def max_pool(net: Network, x: str, kernel: int, *, padding: int = 0) -> str:
    """Add a MaxPool with a stride of 2."""
    return net.add("MaxPool", x, kernel_shape=[kernel] * 2, strides=[2, 2], pads=[padding] * 4)


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
