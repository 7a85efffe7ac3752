"""Made-up values to compute on, if there are no real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from shisha_rt.model.graph import Tensor
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.noise import noise
from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF, TensorSpec

Array: TypeAlias = npt.NDArray[Any]
_Result = TypeVar("_Result")
_CHANGES: Final[tuple[Callable[[Array], Array], ...]] = (np.zeros_like, lambda values: values, np.abs, np.ones_like)


def noise_for(tensors: Iterable[Tensor | TensorSpec], generator: np.random.Generator) -> dict[str, Array]:
    """Noise for each of the tensors, by name."""
    return {tensor.name: noise(tensor.shape, tensor.datatype, generator) for tensor in tensors}


def run_on_something(
    run: Callable[[dict[str, Array]], _Result],
    tensors: Sequence[TensorSpec],
    first: int = 0,
    most: int | None = None,
    seed: int = 0,
) -> _Result:
    """The result of `run` on made-up values of tensors; those that have a `made_up` value get that.

    With some values, a tensor whose shape depends on the data is empty, and an operator behind it may fail: then other
    values are tried. `first`: 0 to begin with zeros, which cost nothing, 1 with noise; `most`: how many kinds of values
    are tried at most; `seed`: of the noise. Raises the first error of `run`.
    """
    fault: Exception | None = None
    values: dict[str, Array] = {}
    for change in (*_CHANGES[first:], *_CHANGES[:first])[:most]:
        if change is not np.zeros_like and not values:
            values = noise_for(tensors, np.random.default_rng(seed))
        given = values or {spec.name: np.zeros(spec.shape, NUMPY_OF[spec.datatype]) for spec in tensors}
        try:
            changed = {name: change(array) for name, array in given.items()}
            return run(
                changed | {spec.name: np.full_like(given[spec.name], spec.made_up) for spec in tensors if spec.made_up}
            )
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
