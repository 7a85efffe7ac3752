"""VGG-16 (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import Image, Kernel, conv, fully_connected, max_pool, relu
from shisha_rt.model.topologies.network import Network

_STAGES: Final = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, Convs
_FEATURES: Final = (512 * 7 * 7, 4096, 4096)
_CLASSES: Final = 1000


def vgg16() -> onnx.ModelProto:
    """(1, 3, 224, 224) to logits (1, 1000): 13 Convs and three Gemms, 553 MB of weights."""
    net = Network("vgg16")
    x = Image(net.input("image", (1, 3, 224, 224)), 3)
    for stage, (channels, convs) in enumerate(_STAGES):
        with net.scope(f"stage{stage}"):
            for _ in range(convs):
                x = relu(net, conv(net, x, channels, Kernel(3)))
            x = max_pool(net, x, 2)
    with net.scope("classifier"):
        flat = net.add("Flatten", x.name)
        for features_in, features in pairwise(_FEATURES):
            flat = net.add("Relu", fully_connected(net, flat, features_in, features))
        logits = fully_connected(net, flat, _FEATURES[-1], _CLASSES)
    return net.model({logits: (1, _CLASSES)})
