"""Sizes that a model's own metadata suggests for dimensions that it leaves open: `shisha_rt.dim.NAME` = SIZE."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import onnx

_PREFIX: Final = "shisha_rt.dim."
_SIZE: Final = re.compile("[1-9][0-9]{0,8}")


def set_default_dims(model: onnx.ModelProto, dims: Mapping[str, int]) -> None:
    """Add suggested sizes to the model's metadata, which must not have any of them yet."""
    for name, size in dims.items():
        model.metadata_props.add(key=_PREFIX + name, value=str(size))


def default_dims(model: onnx.ModelProto) -> dict[str, int]:
    """Sizes by the dimensions' names. An entry whose value is no size suggests nothing."""
    return {
        entry.key.removeprefix(_PREFIX): int(entry.value)
        for entry in model.metadata_props
        if entry.key.startswith(_PREFIX) and _SIZE.fullmatch(entry.value)
    }
