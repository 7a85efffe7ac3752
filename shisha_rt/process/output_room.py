"""How large a buffer a slot has for an output whose shape depends on the data. Pure."""

from __future__ import annotations

from typing import Final

OUTPUT_BYTES: Final = 1 << 20
LEAST_OUTPUT_BYTES: Final = 1 << 10
MOST_OUTPUT_BYTES: Final = 1 << 30
