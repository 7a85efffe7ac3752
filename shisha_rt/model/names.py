"""Names that nothing else in a graph has."""

from __future__ import annotations

from collections.abc import Collection


def unused_name(wish: str, taken: Collection[str]) -> str:
    """`wish`, or with a number behind it where it is taken; `taken` is a set, or as quick to look into."""
    name, number = wish, 1
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    return name
