"""Made-up values to compute on, if there are no real ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.noise import noise
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import NUMPY_OF, Tensor

Array: TypeAlias = npt.NDArray[Any]
_Result = TypeVar("_Result")


_CHANGES: Final[tuple[Callable[[Array], Array], ...]] = (
    *(np.zeros_like, lambda values: values, np.abs, np.ones_like),
    # Halves, as of thresholds, which rounding may move to either side; integers of 1.
    lambda values: np.full_like(values, 0.5 if values.dtype.kind == "f" else 1),
)
_OF_ONES: Final = 2
_MOVED: Final = 2.0**-16
"""Largest relative change of each float: about what rounding adds up to over the layers of a network."""
_MOVED_ULPS: Final = 2
"""The change is at least so many ulps, which counts for floats of fewer bits."""


def noise_for(tensors: Iterable[Tensor], generator: np.random.Generator) -> dict[str, Array]:
    return {tensor.name: noise(tensor.shape, tensor.datatype, generator) for tensor in tensors}


def run_on_something(
    run: Callable[[dict[str, Array]], _Result],
    tensors: Sequence[Tensor],
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


def run_on_frame(run: Callable[[dict[str, Array]], _Result], tensors: Sequence[Tensor], seed: int) -> _Result:
    """As `run_on_something`, on a frame of this number: integers, which may be indices, are zeros and ones if `run` can
    have them; all are 0 in frame 0, and 1 in frame 2, as in masks that hide nothing.
    """
    generator = np.random.default_rng(seed)
    least = int(seed == _OF_ONES)
    drawn = {spec.name: generator.integers(least, 2, spec.shape) for spec in tensors if seed and not spec.made_up}
    dtypes = {spec.name: NUMPY_OF[spec.datatype] for spec in tensors}
    few = {
        name: values.astype(dtypes[name])
        for name, values in drawn.items()
        if dtypes[name].kind == "b" or (dtypes[name].kind in "iu" and dtypes[name].itemsize > 1)
    }

    def attempt(given: dict[str, Array]) -> _Result:
        return run_on_something(lambda inputs: run(inputs | given), tensors, first=1, seed=seed)

    if not few:
        return attempt({})
    try:
        return attempt(few)
    except Exception as fault:  # engines raise exceptions of any type
        try:
            return attempt({})
        except Exception:
            raise fault from None


def moved(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with each float's last bits changed: answers to them are as right (see `costs.agreement`)."""
    generator = np.random.default_rng(0)

    def of(values: Array) -> Array:
        if values.dtype.kind != "f":
            return values
        most = max(_MOVED, _MOVED_ULPS * float(np.finfo(values.dtype).eps))
        return np.asarray(values * (1 + generator.uniform(-most, most, values.shape)), values.dtype)

    return {name: of(values) for name, values in inputs.items()}


@contextlib.contextmanager
def arena_of_own(index: ModelIndex, first_run: Callable[[Arena], object] = lambda _arena: None) -> Iterator[Arena]:
    """A private arena of one slot with a frame's inputs: noise, or else values on which `first_run` succeeds."""
    arena = Arena.create(layouts_of([index.tensors]), slot_count=1, place_count=1)

    def run(inputs: Mapping[str, Array]) -> None:
        for name, values in inputs.items():
            arena.view(0, arena.layout.regions[name])[...] = values
        first_run(arena)

    try:
        run_on_something(run, index.inputs, first=1)
        yield arena
    finally:
        arena.close()
