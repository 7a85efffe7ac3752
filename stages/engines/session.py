"""A session: a run of operators in an engine, which is bound to arrays once and then run on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]
Bound = Callable[[], None]
CpuClock = Callable[[], float]
"""CPU seconds of the engine's threads until now."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The `count` threads that an engine computes with, of which one is the caller's.

    `cores`: for all threads, the caller's first; none: the other threads run wherever the process may when they are
    started. They inherit the niceness of the thread that starts them. `spin`: threads without work busy-wait for a
    while before they sleep, as ONNX Runtime's can.
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


class Session(Protocol):
    """`input_names` and `output_names` say in which order arrays are bound; all tensors are plain, row-major."""

    @property
    def input_names(self) -> tuple[str, ...]: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Bound:
        """A function that computes `outputs` in place, from the values that `inputs` have when it is called.

        It keeps the arrays alive. Raises ValueError if a shape or datatype does not fit.
        """
        ...


def one_line(error: BaseException) -> str:
    """An exception as a single line: its type and message, without the position in the engine's sources."""
    text = " ".join(_IN_SOURCES.sub("", str(error)).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
