"""ResNet-18 (He et al., 2015)."""

from __future__ import annotations

from typing import Final

import onnx

from shisha_rt.graph.topologies.blocks import fully_connected, max_pool, normalized_conv
from shisha_rt.graph.topologies.network import Network

_STAGE_CHANNELS: Final = (64, 128, 256, 512)
_BLOCKS: Final = 2
_CLASSES: Final = 1000


def resnet18() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 20 Convs, three of them in shortcuts, and a Gemm."""
    net = Network("resnet18")
    with net.scope("stem"):
        x = normalized_conv(net, net.input("image", (1, 3, 224, 224)), 3, 64, 7, stride=2)
        x = max_pool(net, net.add("Relu", x), 3, padding=1)
    channels_in = 64
    for stage, channels in enumerate(_STAGE_CHANNELS):
        for block in range(_BLOCKS):
            with net.scope(f"stage{stage}/block{block}"):
                x = _block(net, x, channels_in, channels)
            channels_in = channels
    with net.scope("classifier"):
        x = net.add("Flatten", net.add("GlobalAveragePool", x))
        logits = fully_connected(net, x, channels_in, _CLASSES)
    return net.model({logits: (1, _CLASSES)})


def _block(net: Network, x: str, channels_in: int, channels: int) -> str:
    """Where the number of channels grows, height and width are halved, and the shortcut has a Conv of its own."""
    stride = 1 if channels == channels_in else 2
    inner = net.add("Relu", normalized_conv(net, x, channels_in, channels, 3, stride=stride))
    inner = normalized_conv(net, inner, channels, channels, 3)
    shortcut = x if stride == 1 else normalized_conv(net, x, channels_in, channels, 1, stride=stride)
    return net.add("Relu", net.add("Add", inner, shortcut))
