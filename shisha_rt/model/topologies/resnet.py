"""ResNet-18 (He et al., 2015) and ResNeXt-50, 32x4d (Xie et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import Image, Kernel, fully_connected, max_pool, normalized_conv, relu
from shisha_rt.model.topologies.network import Network

_STAGE_CHANNELS: Final = (64, 128, 256, 512)
_CLASSES: Final = 1000
_PATHS: Final = 32
"""ResNeXt's cardinality: groups of each 3x3 Conv, of 4 channels each in the first stage."""
_WIDTH: Final = 2
_EXPANSION: Final = 4
"""Channels inside a ResNeXt block (`_WIDTH`) and of its output, as multiples of its stage's channels."""

_Block = Callable[[Network, Image, int, int], Image]
"""Adds a block to a network; given the block's input, the stage's channels, and the stride."""


def resnet18() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 20 Convs, three of them in shortcuts, and a Gemm."""
    return _network("resnet18", (2, 2, 2, 2), _basic_block)


def resnext50() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 53 Convs, 16 of them in groups and four in shortcuts, and a Gemm."""
    return _network("resnext50", (3, 4, 6, 3), _block_of_paths)


def _network(name: str, blocks: Sequence[int], add_block: _Block) -> onnx.ModelProto:
    """`blocks` (stages,): the number of blocks of each stage. Each stage but the first halves height and width."""
    net = Network(name)
    with net.scope("stem"):
        x = normalized_conv(net, Image(net.input("image", (1, 3, 224, 224)), 3), 64, Kernel(7, stride=2))
        x = max_pool(net, relu(net, x), 3, padding=1)
    for stage, (channels, count) in enumerate(zip(_STAGE_CHANNELS, blocks, strict=True)):
        for block in range(count):
            with net.scope(f"stage{stage}/block{block}"):
                x = add_block(net, x, channels, 2 if stage and not block else 1)
    with net.scope("classifier"):
        flat = net.add("Flatten", net.add("GlobalAveragePool", x.name))
        logits = fully_connected(net, flat, x.channels, _CLASSES)
    return net.model({logits: (1, _CLASSES)})


def _basic_block(net: Network, x: Image, channels: int, stride: int) -> Image:
    inner = relu(net, normalized_conv(net, x, channels, Kernel(3, stride)))
    return _joined(net, normalized_conv(net, inner, channels, Kernel(3)), x, stride)


def _block_of_paths(net: Network, x: Image, channels: int, stride: int) -> Image:
    inner = relu(net, normalized_conv(net, x, _WIDTH * channels, Kernel(1)))
    inner = relu(net, normalized_conv(net, inner, inner.channels, Kernel(3, stride, groups=_PATHS)))
    return _joined(net, normalized_conv(net, inner, _EXPANSION * channels, Kernel(1)), x, stride)


def _joined(net: Network, inner: Image, x: Image, stride: int) -> Image:
    """Add the shortcut, which has a Conv of its own if shapes change."""
    if x.channels != inner.channels:
        x = normalized_conv(net, x, inner.channels, Kernel(1, stride))
    return relu(net, inner._replace(name=net.add("Add", inner.name, x.name)))
