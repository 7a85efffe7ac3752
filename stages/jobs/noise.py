"""Made-up values to compute on, if there are no real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.noise import noise
from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF

Array: TypeAlias = npt.NDArray[Any]
_Result = TypeVar("_Result")
_CHANGES: Final[tuple[Callable[[Array], Array], ...]] = (np.zeros_like, lambda values: values, np.abs, np.ones_like)


def run_on_something(
    run: Callable[[dict[str, Array]], _Result],
    tensors: Sequence[tuple[str, tuple[int, ...], str]],
    first: int = 0,
    most: int | None = None,
    whole: Mapping[str, int] = MappingProxyType({}),
    seed: int = 0,
) -> _Result:
    """The result of `run` on made-up values of tensors, each given by name, shape and datatype.

    With some values, a tensor whose shape depends on the data is empty, and an operator behind it may fail: then other
    values are tried. `first`: 0 to begin with zeros, which cost nothing, 1 with noise; `most`: how many kinds of values
    are tried at most; `whole`: the values that fill tensors of integers, by name; `seed`: of the noise. Raises the
    first error of `run`.
    """
    fault: Exception | None = None
    values: dict[str, Array] = {}
    for change in (*_CHANGES[first:], *_CHANGES[:first])[:most]:
        if change is not np.zeros_like and not values:
            generator = np.random.default_rng(seed)
            values = {name: noise(shape, datatype, generator) for name, shape, datatype in tensors}
        given = values or {name: np.zeros(shape, NUMPY_OF[datatype]) for name, shape, datatype in tensors}
        try:
            changed = {name: change(array) for name, array in given.items()}
            return run(changed | {name: np.full_like(given[name], value) for name, value in whole.items()})
        except Exception as error:  # engines raise exceptions of any type
            fault = fault or error
    assert fault is not None
    raise fault


def fill(arena: Arena, index: ModelIndex, slot: int = 0) -> None:
    """Fill a slot with a frame's inputs: made-up numbers, or noise."""
    generator = np.random.default_rng(0)
    for spec in index.inputs:
        value = spec.made_up or noise(spec.shape, spec.datatype, generator)
        arena.view(slot, arena.layout.regions[spec.name])[...] = value
