"""Paths through the device-mapped graph: one device for each operator so far; paths share their beginnings.

Extending a path takes constant time and memory. Looking up one operator's device takes O(log n): every element also
points far back, by jumps whose lengths follow skew binary numbers (Myers, "An applicative random-access stack", 1983).
A path is a number: with 300,000 path objects, Python's garbage collector would take longer than creating them.
"""

from __future__ import annotations

from typing import Final

START: Final = 0
"""The path that has run no operator."""


class Paths:
    """All paths of one search. A path that ends with operator j has run operators 0 to j."""

    __slots__ = ("_before", "_device", "_jump", "_last")

    def __init__(self) -> None:
        self._last = [-1]
        self._device = [-1]
        self._before = [START]
        self._jump = [START]

    def then(self, path: int, device: int) -> int:
        """The path extended by the next operator, on `device`."""
        last, jumps = self._last, self._jump
        jump = jumps[path]
        far = jumps[jump]
        if last[path] - last[jump] != last[jump] - last[far]:
            far = path
        last.append(last[path] + 1)
        self._device.append(device)
        self._before.append(path)
        jumps.append(far)
        return len(last) - 1

    def device_of(self, operator: int, path: int) -> int:
        last = self._last
        while last[path] > operator:
            jump = self._jump[path]
            path = jump if last[jump] >= operator else self._before[path]
        return self._device[path]

    def devices(self, path: int) -> tuple[int, ...]:
        """The devices of a path's operators, in order."""
        covering = []
        while path != START:
            covering.append(self._device[path])
            path = self._before[path]
        return tuple(reversed(covering))
