"""Values that the TAB key offers for arguments, without imports or look-ups that would make it slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from shisha_rt.machine.config.shipped import shipped_configs

ZOO: Final = (
    *("alexnet", "bert", "darknet53", "densenet121", "gpt2", "inception_v1", "inception_v2", "resnet18", "resnet50"),
    *("resnext50", "roberta", "shufflenet", "squeezenet", "synthnet", "text_classifier", "text_detector"),
    *("text_recogniser", "vgg16", "vgg19", "yolov3", "zfnet512"),
)
"""The networks of `model.zoo`, which takes long to import."""


def offer_models(incomplete: str) -> list[str]:
    """Networks of the zoo; if none fits, the shell offers files."""
    return _fitting([f"zoo:{name}" for name in ZOO], incomplete)


def offer_machines(incomplete: str) -> list[str]:
    """Shipped names; if none fits, the shell offers files."""
    return _fitting(["this-machine", *shipped_configs("machines")], incomplete)


def offer(*values: str) -> Callable[[str], list[str]]:
    return lambda incomplete: _fitting(values, incomplete)


def _fitting(values: Sequence[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]
