"""What counts as a layer: a heavy operator with the light ones that go with it, or every single operator. Only the
cleaned graph can be cut into single operators.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

LayerKind = Literal["heavy", "operators"]
LAYER_KINDS: Final[tuple[LayerKind, ...]] = get_args(LayerKind)
