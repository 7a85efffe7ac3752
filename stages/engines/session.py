"""A session: a run of operators in an engine, which is bound to arrays once and then run on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shisha_rt.process.arena import Arena
from shisha_rt.tensors import NUMPY_OF, Tensor

Array: TypeAlias = npt.NDArray[Any]
CpuClock: TypeAlias = Callable[[], float]
"""CPU seconds of the engine's threads until now."""
Bound: TypeAlias = Callable[[CpuClock], tuple[float, ...]]
"""Computes on its bound arrays, which it keeps alive; returns segments' seconds (placed on devices), else ()."""


def untimed() -> float:
    """The clock of a run whose time does not count."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Threads:
    """The `count` threads that an engine computes with, of which one is the caller's.

    `cores`: a core for each thread, the caller's first; if empty, the other threads may run on the cores that the
    process may use when they are started. Threads inherit the niceness of the thread that starts them. `spin`: threads
    without work busy-wait for a while before they sleep, as ONNX Runtime's can.
    """

    count: int = 1
    cores: Sequence[int] = ()
    spin: bool = False

    @property
    def others_cores(self) -> Sequence[int]:
        """The cores of all threads but the caller's; empty if not specified."""
        return self.cores[1:] if self.count == len(self.cores) else self.cores


ONE_THREAD: Final = Threads()

_IN_SOURCES: Final = re.compile(
    r"/\S+:\d+ [^()]*\([^()]*\)(?: const)? |^(?:Caught exception: )?Exception from \S+\n| failed at \S+:$", re.MULTILINE
)
"""The position in the engine's sources in an error's text, as ONNX Runtime and OpenVINO write it."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The tensors at both ends of a session. `axes`: if it computes batches, each tensor's axis of frames, by name."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    axes: Mapping[str, int] = field(default_factory=dict)

    @property
    def both(self) -> tuple[Tensor, ...]:
        return self.inputs + self.outputs

    @property
    def size_bytes(self) -> int:
        """Bytes of a frame's tensors."""
        return sum(spec.size_bytes for spec in self.both)

    def arrays(self) -> dict[str, Array]:
        """An array for each tensor, by name: zeros, or the value with which the model runs."""
        return {spec.name: np.full(spec.shape, spec.made_up, NUMPY_OF[spec.datatype]) for spec in self.both}

    def fitting(self, spec: Tensor, arrays: Mapping[str, Array]) -> Array:
        """The tensor's array, of which an engine only gets the address.

        Raises ValueError unless it has the tensor's datatype, its shape (for any number of frames), and is row-major.
        """
        array, any_size = arrays[spec.name], self.axes.get(spec.name)
        alike = array.ndim == len(spec.shape) and all(
            axis == any_size or size == array.shape[axis] for axis, size in enumerate(spec.shape)
        )
        if not alike or array.dtype != NUMPY_OF[spec.datatype] or not array.flags.c_contiguous:
            layout = "row-major" if array.flags.c_contiguous else "not row-major"
            raise ValueError(f"tensor {spec.name!r} is {spec.datatype} {spec.shape}, row-major; "
                             f"its array is {array.dtype} {array.shape}, {layout}")  # fmt: skip
        return array


class EngineSession:
    """Operators that are ready to run, in one shape of the model. All tensors are plain and row-major.

    `frame_bytes`: weights (`weight_bytes`), inputs and outputs that one frame moves. `described`: its time comes from
    descriptions of devices, not from this host. `difference`: by how much its outputs differ from the default engine's
    in full precision, 0 if not measured (see `stages.built.placed`).
    """

    described = False
    difference = 0.0

    def __init__(self, ends: Ends, weight_bytes: int) -> None:
        self.ends = ends
        self.weight_bytes = weight_bytes
        self.frame_bytes = weight_bytes + ends.size_bytes

    @property
    def paced(self) -> bool:
        """Whether its time is emulated now."""
        return self.described

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        """Bind arrays of its ends, by name: the result computes outputs in place, from the inputs' values at that time.

        Raises ValueError for an array that does not fit.
        """
        raise NotImplementedError

    def on_slot(self, arena: Arena, slot: int, layout: int = 0) -> Bound:
        regions = arena.layouts[layout].regions
        return self.bind({spec.name: arena.view(slot, regions[spec.name]) for spec in self.ends.both})

    def apart(self) -> Bound:
        """Bind memory of its own, for a warm-up."""
        return self.bind(self.ends.arrays())

    def answers(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs for these inputs, on memory of its own."""
        arrays = self.ends.arrays()
        for spec in self.ends.inputs:
            arrays[spec.name][...] = given[spec.name]
        self.bind(arrays)(untimed)
        return {spec.name: arrays[spec.name] for spec in self.ends.outputs}

    def give_back(self) -> None:
        """Release memory that the engine has allocated for frames, beyond what a warm-up needs."""


def one_line(error: BaseException) -> str:
    """An exception as a single line: its type and message, without the position in the engine's sources."""
    text = " ".join(_IN_SOURCES.sub("", str(error)).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
