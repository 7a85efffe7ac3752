"""What a user says of the sizes that a model leaves open: of single dimensions, by name, or of whole inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LARGEST_SIZE: Final = 2**31 - 1
"""Of a dimension; engines count in as many bits here and there."""


@dataclass(frozen=True, slots=True)
class InputSizes:
    """`dims`: sizes by the name of a dimension; `shapes`: whole shapes by the name of an input."""

    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def shapes_in_words(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Write shapes as the command line has them, `x=1x3x48x320`, with spaces between several inputs."""
    return " ".join(f"{name}={'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())


ANY_SIZES: Final = InputSizes()
"""Nothing is said: a model must leave nothing open, or suggest a size."""
