"""How to build each topology, by its name in the zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import onnx

from shisha_rt.model.topologies.bert import bert, roberta
from shisha_rt.model.topologies.darknet import darknet53, yolov3
from shisha_rt.model.topologies.gpt2 import gpt2
from shisha_rt.model.topologies.resnet import resnet18, resnext50
from shisha_rt.model.topologies.synthnet import synthnet
from shisha_rt.model.topologies.vgg import vgg16

TOPOLOGIES: Final[Mapping[str, Callable[[], onnx.ModelProto]]] = MappingProxyType(
    {build.__name__: build for build in (bert, darknet53, gpt2, resnet18, resnext50, roberta, synthnet, vgg16, yolov3)}
)
