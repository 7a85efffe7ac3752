"""What a run of operators becomes in an engine: something that is bound to arrays once and then run on them."""

from __future__ import annotations

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
    """What an engine computes with: `count` threads, of which one is the caller's.

    `cores` are for all of them, the caller's first; none: the others run wherever the process may when they are made.
    They inherit the niceness of who makes them. `spin`: they wait for the next piece of work for a while before they
    sleep, as ONNX Runtime's can.
    """

    count: int = 1
    cores: Sequence[int] = ()
    spin: bool = False

    @property
    def others_cores(self) -> Sequence[int]:
        """Those of all threads but the caller's; none: not said."""
        return self.cores[1:] if self.count == len(self.cores) else self.cores


ONE_THREAD: Final = Threads()


class Session(Protocol):
    """`input_names` and `output_names` say in which order arrays are bound; all tensors are plain, row-major."""

    @property
    def input_names(self) -> tuple[str, ...]: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Bound:
        """A function that reads `inputs` and writes `outputs` in place, whatever is in them when it is called.

        The arrays stay alive as long as the function does. Raises ValueError where a shape or datatype does not fit.
        """
        ...
