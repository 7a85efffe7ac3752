"""How layers can be split, by name."""

from __future__ import annotations

from typing import Literal, TypeAlias

SplitMethod: TypeAlias = Literal["integer", "geometric", "greedy", "balanced", "proportional", "communication"]
