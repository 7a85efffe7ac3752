"""SynthNet: 18 convolutional layers taken from AlexNet, which has too few of its own for many places (Shisha, 2022).

The paper does not list them. Here AlexNet's five repeat (Krizhevsky et al., 2012; without groups, which Eq. 1 ignores),
with ReLU behind each, and pooling where AlexNet has it:

| layers            | input         | filters          | stride | then    |
|-------------------|---------------|------------------|--------|---------|
| 0, 5, 10, 15      | 3 x 224 x 224 | 96 of 11 x 11    | 4      | MaxPool |
| 1, 6, 11, 16      | 96 x 26 x 26  | 256 of 5 x 5     | 1      | MaxPool |
| 2, 7, 12, 17      | 256 x 12 x 12 | 384 of 3 x 3     | 1      |         |
| 3, 8, 13          | 384 x 12 x 12 | 384 of 3 x 3     | 1      |         |
| 4, 9, 14          | 384 x 12 x 12 | 256 of 3 x 3     | 1      | an image |

A new round starts from an image, so that each layer has the same size as in AlexNet: the first three channels of the
last round's result, enlarged to 224 x 224.
"""

from __future__ import annotations

from typing import Final

import onnx

from shisha_rt.model.topologies.blocks import Image, Kernel, conv, enlarge, max_pool, relu
from shisha_rt.model.topologies.network import Network

_LAYERS: Final = 18
_PICTURE: Final = (1, 3, 224, 224)
_ALEXNET: Final = ((96, 11), (256, 5), (384, 3), (384, 3), (256, 3))  # filters, kernel
_POOLED: Final = (0, 1)


def synthnet() -> onnx.ModelProto:
    """(1, 3, 224, 224) to the last layer's features (1, 384, 12, 12)."""
    net = Network("synthnet")
    x = Image(net.input("image", _PICTURE), 3)
    for layer in range(_LAYERS):
        position = layer % len(_ALEXNET)
        filters, size = _ALEXNET[position]
        with net.scope(f"layer{layer}"):
            if layer and position == 0:
                x = _picture(net, x)
            x = relu(net, conv(net, x, filters, Kernel(size, stride=4, padding=0) if position == 0 else Kernel(size)))
            if position in _POOLED:
                x = max_pool(net, x, 3)
    return net.model({x.name: (1, 384, 12, 12)})


def _picture(net: Network, x: Image) -> Image:
    few = net.add("Slice", x.name, net.constant([0]), net.constant([3]), net.constant([1]))
    return Image(enlarge(net, few, _PICTURE), 3)
