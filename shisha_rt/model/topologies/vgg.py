"""VGG-16 (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import conv, fully_connected, max_pool
from shisha_rt.model.topologies.network import Network

_STAGES: Final = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, Convs
_FEATURES: Final = (512 * 7 * 7, 4096, 4096)
_CLASSES: Final = 1000


def vgg16() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 13 Convs and three Gemms, 553 MB of weights."""
    net = Network("vgg16")
    x = net.input("image", (1, 3, 224, 224))
    channels_in = 3
    for stage, (channels, convs) in enumerate(_STAGES):
        with net.scope(f"stage{stage}"):
            for _ in range(convs):
                x = net.add("Relu", conv(net, x, channels_in, channels, 3))
                channels_in = channels
            x = max_pool(net, x, 2)
    with net.scope("classifier"):
        x = net.add("Flatten", x)
        for features_in, features in pairwise(_FEATURES):
            x = net.add("Relu", fully_connected(net, x, features_in, features))
        logits = fully_connected(net, x, _FEATURES[-1], _CLASSES)
    return net.model({logits: (1, _CLASSES)})
