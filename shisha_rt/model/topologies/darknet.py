"""Darknet-53 and, on top of it, the detector YOLOv3 (Redmon and Farhadi, 2018).

Shisha counts 52 layers in YOLOv3: the Convs of the backbone, which is `darknet53` here, without the classifier that
ends it elsewhere. The whole detector has 75.
"""

from __future__ import annotations

from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import Image, Kernel, conv, enlarge, normalized_conv
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
    return net.model({features.name: (1, 1024, 13, 13)})


def yolov3() -> onnx.ModelProto:
    """(1, 3, 416, 416) to boxes, not decoded, at three scales: (1, 255, s, s) for s = 13, 26, 52."""
    net = Network("yolov3")
    *_, fine, middle, coarse = _backbone(net)
    with net.scope("coarse"):
        x, coarse_boxes = _detect(net, coarse, 1024)
    with net.scope("middle"):
        x, middle_boxes = _detect(net, _join(net, x, middle, 26), 512)
    with net.scope("fine"):
        _, fine_boxes = _detect(net, _join(net, x, fine, 52), 256)
    sides = {coarse_boxes: 13, middle_boxes: 26, fine_boxes: 52}
    return net.model({boxes.name: (1, _BOX_CHANNELS, side, side) for boxes, side in sides.items()})


def _backbone(net: Network) -> list[Image]:
    """The features that each stage ends with; a stage halves the height and the width."""
    with net.scope("stem"):
        x = _conv(net, Image(net.input("image", (1, 3, _SIDE, _SIDE)), 3), _STEM, Kernel(3))
    ends = []
    for stage, (channels, blocks) in enumerate(_STAGES):
        with net.scope(f"stage{stage}"):
            x = _conv(net, x, channels, Kernel(3, stride=2))
            for _ in range(blocks):
                inner = _conv(net, _conv(net, x, channels // 2, Kernel(1)), channels, Kernel(3))
                x = Image(net.add("Add", inner.name, x.name), channels)
        ends.append(x)
    return ends


def _detect(net: Network, x: Image, channels: int) -> tuple[Image, Image]:
    """The input of the next finer scale, with `channels` / 2 channels, and the boxes of this scale."""
    x = _conv(net, x, channels // 2, Kernel(1))
    for _ in range(2):
        x = _conv(net, _conv(net, x, channels, Kernel(3)), channels // 2, Kernel(1))
    return x, conv(net, _conv(net, x, channels, Kernel(3)), _BOX_CHANNELS, Kernel(1))


def _join(net: Network, x: Image, features: Image, side: int) -> Image:
    """Concatenate `x`, with half of its channels and enlarged to `side`, and the finer `features`."""
    x = _conv(net, x, x.channels // 2, Kernel(1))
    larger = enlarge(net, x.name, (1, x.channels, side, side))
    return Image(net.add("Concat", larger, features.name, axis=1), x.channels + features.channels)


def _conv(net: Network, x: Image, channels: int, kernel: Kernel) -> Image:
    x = normalized_conv(net, x, channels, kernel)
    return x._replace(name=net.add("LeakyRelu", x.name, alpha=_SLOPE))
