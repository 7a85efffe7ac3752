"""Built stages by their content: no stage is built again while one of equal content exists.

Plans come back: a daemon that follows its load alternates between two, and a search returns to the best. So the last
few stages stay when no live plan has them, if they take little private memory; all others go with their last plan.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from stages.built.stage import BuiltStage

MOST_STAGES: Final = 4
MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    stage: BuiltStage
    private_bytes: int


class KeptStages:
    """Stages kept by content; `private_bytes` of a stage: what building it added."""

    def __init__(self, most_stages: int = MOST_STAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most_stages = most_stages
        self._most_bytes = most_bytes
        self._alive: weakref.WeakValueDictionary[Hashable, BuiltStage] = weakref.WeakValueDictionary()
        self._warm_s: weakref.WeakKeyDictionary[BuiltStage, float] = weakref.WeakKeyDictionary()
        self._last: dict[Hashable, _Kept] = {}  # the least recently used comes first

    def find(self, content: Hashable) -> tuple[BuiltStage, float] | None:
        """The stage and the seconds of its warm-up, or None if there is no such stage."""
        stage = self._alive.get(content)
        if stage is None:
            return None
        if content in self._last:
            self._last[content] = self._last.pop(content)
        return stage, self._warm_s[stage]

    def add(self, content: Hashable, stage: BuiltStage, warm_s: float, private_bytes: int) -> None:
        """Add a new stage; the least recently used ones may be dropped for it."""
        self._alive[content], self._warm_s[stage] = stage, warm_s
        self._last.pop(content, None)
        if private_bytes > self._most_bytes:
            return
        self._last[content] = _Kept(stage, max(0, private_bytes))
        while len(self._last) > self._most_stages or self._bytes > self._most_bytes:
            del self._last[next(iter(self._last))]

    def forget(self, is_doomed: Callable[[Any], bool]) -> None:
        """Stop keeping stages of such content: each goes with its last plan."""
        self._last = {content: kept for content, kept in self._last.items() if not is_doomed(content)}

    @property
    def _bytes(self) -> int:
        return sum(kept.private_bytes for kept in self._last.values())
