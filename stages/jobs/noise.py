"""Values to compute on where there are no real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shisha_rt.graph.datatypes import NUMPY_OF

_CHANGES: Final[tuple[Callable[[npt.NDArray[Any]], npt.NDArray[Any]], ...]] = (
    lambda values: values,
    np.abs,
    np.zeros_like,
    np.ones_like,
)


def made_up(tensors: Sequence[tuple[str, tuple[int, ...], str]]) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Values for tensors, given by name, shape and datatype; and others, where a network takes nothing out of those.

    What depends on the data may be empty with some values, which not every operator stands.
    """
    generator = np.random.default_rng(0)
    values = {name: noise(shape, datatype, generator) for name, shape, datatype in tensors}
    for change in _CHANGES:
        yield {name: change(array) for name, array in values.items()}


def noise(shape: tuple[int, ...], datatype: str, generator: np.random.Generator) -> npt.NDArray[Any]:
    """What the values are must not make an operator's work easier, as zeros might; whole numbers may be indices."""
    dtype = NUMPY_OF[datatype]
    return generator.standard_normal(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
