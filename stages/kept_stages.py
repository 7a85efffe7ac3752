"""Built stages by their content: no stage is built again while one of equal content exists.

Plans come back: a daemon that follows its load alternates between two, and a search returns to the best. So the last
few stages stay when no live plan has them, if they take little private memory; all others go with their last plan.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Final

from stages.built.stage import BuiltStage

MOST_STAGES: Final = 4
MOST_BYTES: Final = 64 << 20


class KeptStages:
    """Stages by content, of which the last few are kept, up to so many bytes of private memory."""

    def __init__(self, most_stages: int = MOST_STAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most_stages = most_stages
        self._most_bytes = most_bytes
        self._alive: weakref.WeakValueDictionary[Hashable, BuiltStage] = weakref.WeakValueDictionary()
        self._last: dict[Hashable, BuiltStage] = {}  # the least recently used comes first

    def find(self, content: Hashable) -> BuiltStage | None:
        if content in self._last:
            self._last[content] = self._last.pop(content)
        return self._alive.get(content)

    def add(self, content: Hashable, stage: BuiltStage) -> None:
        """Add a new stage; the least recently used ones may be dropped for it."""
        self._alive[content] = stage
        self._last.pop(content, None)
        if stage.private_bytes > self._most_bytes:
            return
        self._last[content] = stage
        while len(self._last) > self._most_stages or self._bytes > self._most_bytes:
            del self._last[next(iter(self._last))]

    def forget(self, is_doomed: Callable[[Any], bool]) -> None:
        """Stop keeping stages of such content: each goes with its last plan."""
        self._last = {content: stage for content, stage in self._last.items() if not is_doomed(content)}

    @property
    def _bytes(self) -> int:
        return sum(max(0, stage.private_bytes) for stage in self._last.values())
