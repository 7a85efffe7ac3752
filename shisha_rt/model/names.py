"""Names that nothing else in a graph has."""

from __future__ import annotations

from collections.abc import Collection


def unused_name(wish: str, taken: Collection[str]) -> str:
    """`wish`, with a number appended if it is taken; `taken` is a set, or as fast to look up."""
    name, number = wish, 1
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    return name
