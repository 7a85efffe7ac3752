"""A stage that computes batches as well as single frames.

Frames in neighbouring slots form one tensor in place. Frames in other slots, and tensors with gaps between slots, are
gathered in the stage's own memory, and outputs are copied from there into the slots.

The operators guarantee that a frame has the same answer in a batch as alone (`model.batches`); a stage is also tried on
a few frames before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np

from shisha_rt.model.noise import noise
from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF, Tensor
from stages.built.differences import relative_difference
from stages.built_stage import BuiltStage, FramesDiffer, GivesBack
from stages.engines.session import Array, CpuClock, one_line

_TRIED_FRAMES: Final = 3
_MOST_OF_LARGEST: Final = 1e-3
"""A batch may be rounded otherwise than a single frame; a network that mixes frames differs by far more."""
_MOST_OF_INTEGERS: Final = 0.05
_HALVES: Final = 16


Go: TypeAlias = Callable[[CpuClock], tuple[float, ...]]
"""Computes on the arrays that it was bound to; returns what `BuiltStage.run` does."""


class ManyFrames(Protocol):
    """A network that computes a batch, on arrays that hold its frames one behind the other."""

    def go_on(self, arrays: Mapping[str, Array]) -> Go: ...


@dataclass(frozen=True, slots=True)
class Together:
    """A stage in one shape of the model: its inputs and outputs, with each one's axis of frames in `axes`, by name.

    `sizes`: networks that compute batches, by the batch's frames; `alone`: returns the stage's outputs for one frame.
    """

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    axes: Mapping[str, int]
    sizes: Mapping[int, ManyFrames]
    alone: Callable[[Mapping[str, Array]], Mapping[str, Array]]


class BatchedStage:
    """`single` computes one frame; `shapes` has one entry for each layout."""

    described = False

    def __init__(self, single: BuiltStage, shapes: Sequence[Together], refused: str = "") -> None:
        """`refused`: why the engine cannot compute several frames; empty if it can."""
        self.single = single
        self._shapes = [_Runs(together) for together in shapes]
        self._tried = False
        self._refused = refused

    @property
    def frame_bytes(self) -> int:
        return self.single.frame_bytes

    @property
    def paced(self) -> bool:
        return self.single.paced

    @property
    def difference(self) -> float:
        return self.single.difference

    def run_bytes(self, frames: int) -> int:
        """Bytes that a batch of `frames` moves: weights once, inputs and outputs of each frame."""
        return self.frame_bytes + (frames - 1) * max(shape.end_bytes for shape in self._shapes)

    def warm(self, cpu_clock: CpuClock) -> tuple[float, ...]:
        """As `BuiltStage`; the first time, run batches too. Raises FramesDiffer."""
        segments_s = self.single.warm(cpu_clock)
        if self._refused:
            raise FramesDiffer(f"the engine computes one frame at a time: {self._refused}")
        if not self._tried:
            try:
                for shape in self._shapes:
                    shape.try_out()
            except FramesDiffer:
                raise
            except Exception as error:  # engines raise exceptions of any type
                raise FramesDiffer(f"the engine computes one frame at a time: {one_line(error)}") from error
            self._tried = True
        return segments_s

    def bind(self, arena: Arena, slot: int) -> None:
        self.single.bind(arena, slot)

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        return self.single.run(arena, slot, cpu_clock, layout)

    def give_back(self) -> None:
        for computes in (self.single, *(many for shape in self._shapes for many in shape.networks)):
            if isinstance(computes, GivesBack):
                computes.give_back()

    def run_together(
        self, arena: Arena, slots: Sequence[int], cpu_clock: CpuClock, layout: int = 0
    ) -> tuple[float, ...]:
        """Compute the tensors of these slots, in ascending order; each run is as large as `sizes` allows."""
        shape, at = self._shapes[layout], 0
        of_goes: list[tuple[float, ...]] = []
        while at < len(slots):
            size = shape.largest(len(slots) - at)
            if size == 1:
                of_goes.append(self.single.run(arena, slots[at], cpu_clock, layout))
            else:
                of_goes.append(shape.run(arena, slots[at : at + size], cpu_clock, layout))
            at += size
        return tuple(map(math.fsum, zip(*of_goes, strict=True)))


@dataclass(frozen=True, slots=True)
class _Binding:
    """`go` works on slots, except for tensors `gathered` from slots before it, or `scattered` to slots after it."""

    go: Go
    gathered: tuple[str, ...]
    scattered: tuple[str, ...]


class _Runs:
    """Runs of batches, in one shape of the model."""

    def __init__(self, together: Together) -> None:
        self._together = together
        self._ends = {spec.name: spec for spec in (*together.inputs, *together.outputs)}
        self._descending = sorted(together.sizes, reverse=True)
        self._bindings: dict[tuple[int, int], _Binding] = {}
        self._aside: dict[str, Array] = {}

    @property
    def end_bytes(self) -> int:
        return sum(spec.size_bytes for spec in self._ends.values())

    @property
    def networks(self) -> set[ManyFrames]:
        """The networks that compute batches; one may be for several sizes."""
        return set(self._together.sizes.values())

    def largest(self, frames: int) -> int:
        """The largest size of at most `frames`; 1 if there is none."""
        return next((size for size in self._descending if size <= frames), 1)

    def run(self, arena: Arena, slots: Sequence[int], cpu_clock: CpuClock, layout: int) -> tuple[float, ...]:
        count = len(slots)
        first = slots[0] if slots[-1] - slots[0] == count - 1 else -1
        binding = self._bindings.get((first, count))
        if binding is None:
            binding = self._bindings[first, count] = self._bind(arena, first, count, layout)
        regions = arena.layouts[layout].regions
        for name in binding.gathered:
            for position, slot in enumerate(slots):
                self._aside[name][position] = arena.raw(slot, regions[name])
        segments_s = binding.go(cpu_clock)
        for name in binding.scattered:
            for position, slot in enumerate(slots):
                arena.raw(slot, regions[name])[...] = self._aside[name][position]
        return segments_s

    def _bind(self, arena: Arena, first: int, count: int, layout: int) -> _Binding:
        """`first`: the first of neighbouring slots; -1 if the slots are not neighbours."""
        regions, axes = arena.layouts[layout].regions, self._together.axes
        arrays, aside = {}, set()
        for name, spec in self._ends.items():
            if first >= 0 and regions[name].is_gapless:
                arrays[name] = arena.view_of_many(first, count, regions[name], axes[name])
            else:
                aside.add(name)
                arrays[name] = self._many(self._room(spec)[:count].reshape(-1), spec, count)
        return _Binding(
            self._together.sizes[count].go_on(arrays),
            tuple(spec.name for spec in self._together.inputs if spec.name in aside),
            tuple(spec.name for spec in self._together.outputs if spec.name in aside),
        )

    def _room(self, spec: Tensor) -> Array:
        """(most frames, bytes): the stage's own memory for this tensor."""
        if spec.name not in self._aside:
            self._aside[spec.name] = np.zeros((self._descending[0], spec.size_bytes), np.uint8)
        return self._aside[spec.name]

    def _many(self, raw: Array, spec: Tensor, count: int) -> Array:
        shape = list(spec.shape)
        shape[self._together.axes[spec.name]] *= count
        return raw.view(NUMPY_OF[spec.datatype]).reshape(shape)

    def try_out(self) -> None:
        """Try each network on a few frames; raise FramesDiffer unless each has the same answer in a batch as alone."""
        given, expected = self._tried_frames()
        sizes_of: dict[ManyFrames, list[int]] = {}
        for size, network in self._together.sizes.items():
            sizes_of.setdefault(network, []).append(size)
        for sizes in sizes_of.values():
            self._try_run(_TRIED_FRAMES if _TRIED_FRAMES in sizes else max(sizes), given, expected)

    def _try_run(
        self, count: int, given: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]
    ) -> None:
        frames = [number % len(given) for number in range(count)]
        arrays = {
            name: self._many(np.zeros(count * spec.size_bytes, np.uint8), spec, count)
            for name, spec in self._ends.items()
        }
        for spec in self._together.inputs:
            apart = arrays[spec.name].reshape(count, -1)
            for position, number in enumerate(frames):
                apart[position] = given[number][spec.name].reshape(-1)
        self._together.sizes[count].go_on(arrays)(lambda: 0.0)
        for spec in self._together.outputs:
            apart = arrays[spec.name].reshape(count, *spec.shape)
            for position, number in enumerate(frames):
                _check_alike(spec, apart[position], expected[number][spec.name])

    def _tried_frames(self) -> tuple[list[Mapping[str, Array]], list[Mapping[str, Array]]]:
        """A few frames that the stage can compute, and its outputs for each of them alone."""
        fault: Exception | None = None
        for change in (_small_numbers, lambda array, _: array, lambda array, _: np.zeros_like(array)):
            generator = np.random.default_rng(0)
            given = [
                {spec.name: change(_made_up(spec, generator), generator) for spec in self._together.inputs}
                for _ in range(_TRIED_FRAMES)
            ]
            try:
                return list(given), [self._together.alone(frame) for frame in given]
            except Exception as error:  # engines raise exceptions of any type
                fault = fault or error
        assert fault is not None
        raise fault


def _made_up(spec: Tensor, generator: np.random.Generator) -> Array:
    if spec.made_up:
        return np.full(spec.shape, spec.made_up, NUMPY_OF[spec.datatype])
    return noise(spec.shape, spec.datatype, generator)


def _small_numbers(array: Array, generator: np.random.Generator) -> Array:
    """Integers that are all 0 are replaced by zeros and ones: valid indices that differ from frame to frame."""
    if array.dtype.kind not in "iu" or array.any():
        return array
    return generator.integers(0, 2, array.shape).astype(array.dtype)


def _check_alike(spec: Tensor, together: Array, alone: Array) -> None:
    most = _MOST_OF_INTEGERS if together.dtype.kind in "iub" else _MOST_OF_LARGEST
    finite = np.isfinite(alone) if alone.dtype.kind == "f" else np.ones(alone.shape, bool)
    difference = relative_difference(together[finite], alone[finite])
    if not difference <= (most if together.dtype != np.float16 else _HALVES * most):  # NaN is no agreement
        raise FramesDiffer(
            f"frames come out of a run otherwise than alone: {spec.name!r} by {difference:.1e} of its largest value"
        )
