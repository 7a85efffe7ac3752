"""ResNet-18 (He et al., 2015) and ResNeXt-50, 32x4d (Xie et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import fully_connected, max_pool, normalized_conv
from shisha_rt.model.topologies.network import Network

_STAGE_CHANNELS: Final = (64, 128, 256, 512)
_CLASSES: Final = 1000
_PATHS: Final = 32
"""ResNeXt's cardinality: groups of each 3x3 Conv, of 4 channels each in the first stage."""
_WIDTH: Final = 2
_EXPANSION: Final = 4
"""Channels inside a ResNeXt block (`_WIDTH`) and of its output, as multiples of its stage's channels."""

_Block = Callable[[Network, str, int, int, int], str]
"""Adds a block to a network; given the block's input, its channels, the stage's channels, and the stride."""


def resnet18() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 20 Convs, three of them in shortcuts, and a Gemm."""
    return _network("resnet18", (2, 2, 2, 2), _basic_block, 1)


def resnext50() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 53 Convs, 16 of them in groups and four in shortcuts, and a Gemm."""
    return _network("resnext50", (3, 4, 6, 3), _block_of_paths, _EXPANSION)


def _network(name: str, blocks: Sequence[int], add_block: _Block, expansion: int) -> onnx.ModelProto:
    """`blocks` (stages,): the number of blocks of each stage. Each stage but the first halves height and width."""
    net = Network(name)
    with net.scope("stem"):
        x = normalized_conv(net, net.input("image", (1, 3, 224, 224)), 3, 64, 7, stride=2)
        x = max_pool(net, net.add("Relu", x), 3, padding=1)
    channels_in = 64
    for stage, (channels, count) in enumerate(zip(_STAGE_CHANNELS, blocks, strict=True)):
        for block in range(count):
            with net.scope(f"stage{stage}/block{block}"):
                x = add_block(net, x, channels_in, channels, 2 if stage and not block else 1)
            channels_in = expansion * channels
    with net.scope("classifier"):
        x = net.add("Flatten", net.add("GlobalAveragePool", x))
        logits = fully_connected(net, x, channels_in, _CLASSES)
    return net.model({logits: (1, _CLASSES)})


def _basic_block(net: Network, x: str, channels_in: int, channels: int, stride: int) -> str:
    inner = net.add("Relu", normalized_conv(net, x, channels_in, channels, 3, stride=stride))
    return _joined(net, normalized_conv(net, inner, channels, channels, 3), x, channels_in, channels, stride)


def _block_of_paths(net: Network, x: str, channels_in: int, channels: int, stride: int) -> str:
    width, channels_out = _WIDTH * channels, _EXPANSION * channels
    inner = net.add("Relu", normalized_conv(net, x, channels_in, width, 1))
    inner = net.add("Relu", normalized_conv(net, inner, width, width, 3, stride=stride, groups=_PATHS))
    return _joined(net, normalized_conv(net, inner, width, channels_out, 1), x, channels_in, channels_out, stride)


def _joined(net: Network, inner: str, x: str, channels_in: int, channels_out: int, stride: int) -> str:
    """Add the shortcut, which has a Conv of its own if shapes change."""
    shortcut = (
        x if channels_in == channels_out else normalized_conv(net, x, channels_in, channels_out, 1, stride=stride)
    )
    return net.add("Relu", net.add("Add", inner, shortcut))
