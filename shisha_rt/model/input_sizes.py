"""Sizes that a user gives for what a model leaves open: single dimensions, by name, or whole inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LARGEST_SIZE: Final = 2**31 - 1
"""Largest size of a dimension: engines use 32-bit counts in places."""
MOST_INPUTS: Final = 512
"""A request names them all in a header of at most 64 KiB."""


@dataclass(frozen=True, slots=True)
class InputSizes:
    """`dims`: sizes by the name of a dimension; `shapes`: whole shapes by the name of an input."""

    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def shapes_in_words(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Write shapes as the command line has them, `x=1x3x48x320`, with spaces between several inputs."""
    return " ".join(f"{name}={'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())


ANY_SIZES: Final = InputSizes()
"""No sizes given: the model must leave nothing open, or suggest sizes."""
