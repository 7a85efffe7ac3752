"""Darknet-53 and, on top of it, the detector YOLOv3 (Redmon and Farhadi, 2018).

Shisha counts 52 layers in YOLOv3: the Convs of the backbone, which is `darknet53` here, without the classifier that
ends it elsewhere. The whole detector has 75.
"""

from __future__ import annotations

from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import conv, enlarge, normalized_conv
from shisha_rt.model.topologies.network import Network

_SIDE: Final = 416  # pixels
_STEM: Final = 32
_STAGES: Final = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))  # channels, residual blocks
_BOX_CHANNELS: Final = 3 * (4 + 1 + 80)  # three anchors, each with a box, an objectness score and 80 classes
_SLOPE: Final = 0.1


def darknet53() -> onnx.ModelProto:
    """The backbone's 52 Convs: (1, 3, 416, 416) to (1, 1024, 13, 13)."""
    net = Network("darknet53")
    *_, features = _backbone(net)
    return net.model({features: (1, 1024, 13, 13)})


def yolov3() -> onnx.ModelProto:
    """(1, 3, 416, 416) to boxes, not decoded, at three scales: (1, 255, s, s) for s = 13, 26, 52."""
    net = Network("yolov3")
    *_, fine, middle, coarse = _backbone(net)
    with net.scope("coarse"):
        x, coarse_boxes = _detect(net, coarse, 1024, 1024)
    with net.scope("middle"):
        x, middle_boxes = _detect(net, _join(net, x, 512, middle, 26), 256 + 512, 512)
    with net.scope("fine"):
        _, fine_boxes = _detect(net, _join(net, x, 256, fine, 52), 128 + 256, 256)
    sides = {coarse_boxes: 13, middle_boxes: 26, fine_boxes: 52}
    return net.model({boxes: (1, _BOX_CHANNELS, side, side) for boxes, side in sides.items()})


def _backbone(net: Network) -> list[str]:
    """The features that each stage ends with; a stage halves the height and the width."""
    with net.scope("stem"):
        x = _conv(net, net.input("image", (1, 3, _SIDE, _SIDE)), 3, _STEM, 3)
    ends = []
    channels_in = _STEM
    for stage, (channels, blocks) in enumerate(_STAGES):
        with net.scope(f"stage{stage}"):
            x = _conv(net, x, channels_in, channels, 3, stride=2)
            for _ in range(blocks):
                inner = _conv(net, x, channels, channels // 2, 1)
                x = net.add("Add", _conv(net, inner, channels // 2, channels, 3), x)
        ends.append(x)
        channels_in = channels
    return ends


def _detect(net: Network, x: str, channels_in: int, channels: int) -> tuple[str, str]:
    """The input of the next finer scale, with `channels` / 2 channels, and the boxes of this scale."""
    x = _conv(net, x, channels_in, channels // 2, 1)
    for _ in range(2):
        x = _conv(net, _conv(net, x, channels // 2, channels, 3), channels, channels // 2, 1)
    return x, conv(net, _conv(net, x, channels // 2, channels, 3), channels, _BOX_CHANNELS, 1)


def _join(net: Network, x: str, channels: int, features: str, side: int) -> str:
    """Concatenate `x`, with half of its channels and enlarged to `side`, and the finer `features`."""
    x = _conv(net, x, channels, channels // 2, 1)
    return net.add("Concat", enlarge(net, x, (1, channels // 2, side, side)), features, axis=1)


def _conv(net: Network, x: str, channels_in: int, channels_out: int, kernel: int, *, stride: int = 1) -> str:
    x = normalized_conv(net, x, channels_in, channels_out, kernel, stride=stride)
    return net.add("LeakyRelu", x, alpha=_SLOPE)
