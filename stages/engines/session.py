"""What a run of operators becomes in an engine: something that is bound to arrays once and then run on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]
Bound = Callable[[], None]
CpuClock = Callable[[], float]
"""CPU seconds of the engine's threads until now."""


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
