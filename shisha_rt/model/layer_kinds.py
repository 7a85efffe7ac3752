"""What counts as a layer: a heavy operator with its light ones, or, in the cleaned graph only, every operator."""

from __future__ import annotations

from typing import Final, Literal, get_args

LayerKind = Literal["heavy", "operators"]
LAYER_KINDS: Final[tuple[LayerKind, ...]] = get_args(LayerKind)
