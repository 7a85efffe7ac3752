"""The bytes that a stage on another host receives and sends back, which follow from its layers alone.

A tensor is sent there once for each stage that reads it, and sent back once, if it is read outside the stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shisha_rt.costs.links import AS_INPUT, CostTensor
from shisha_rt.model.spans import Span

Bytes = npt.NDArray[np.int64]


class StageTraffic(NamedTuple):
    """Bytes that a frame moves for a stage on another host."""

    there_bytes: int
    back_bytes: int


class Crossings:
    """Traffic of stages, from the tensors between layers; cached."""

    def __init__(self, tensors: Iterable[CostTensor]) -> None:
        self._tensors = tuple(tensors)
        self._known: dict[tuple[Span, ...], StageTraffic] = {}

    def of(self, work: tuple[Span, ...]) -> StageTraffic:
        """Bytes of a stage with these runs of layers."""
        if work not in self._known:
            self._known[work] = self._traffic({layer for first, last in work for layer in range(first, last + 1)})
        return self._known[work]

    def _traffic(self, layers: set[int]) -> StageTraffic:
        there_bytes = back_bytes = 0
        for tensor in self._tensors:
            if tensor.made in layers:
                back_bytes += 0 if layers.issuperset(tensor.readers) else tensor.size_bytes
            elif not layers.isdisjoint(tensor.readers):
                there_bytes += tensor.size_bytes
        return StageTraffic(there_bytes, back_bytes)

    def between(self, starts: Sequence[int]) -> tuple[Bytes, Bytes]:
        """(positions, positions) each: bytes there and back, of the run of layers between two positions.

        `starts` (positions,), ascending: the first layer behind each position; for the last, the number of layers.
        """
        there, back = (np.zeros((len(starts) + 1, len(starts) + 1), np.int64) for _ in range(2))
        group_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts)).tolist()
        outputs = len(starts) - 1
        for tensor in self._tensors:
            made = AS_INPUT if tensor.made == AS_INPUT else group_of[tensor.made]
            readers = sorted(
                {group_of[layer] if layer < len(group_of) else outputs for layer in tensor.readers} - {made}
            )
            # Sent: to runs that begin after the maker and up to the next reader, and end after that.
            begin = made + 1
            for reader in readers:
                if reader < outputs:
                    there[begin : reader + 1, reader + 1] += tensor.size_bytes
                begin = reader + 1
            # Returned: by runs that have the maker and not the last reader.
            if made != AS_INPUT and readers:
                back[: made + 1, made + 1] += tensor.size_bytes
                back[: made + 1, readers[-1] + 1] -= tensor.size_bytes
        return tuple(np.cumsum(stage_bytes, axis=1)[:-1, :-1] for stage_bytes in (there, back))  # type: ignore[return-value]
