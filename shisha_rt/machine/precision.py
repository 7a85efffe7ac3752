"""Which devices may run. A separate module, so that a command's help can name the choices without loading devices."""

from __future__ import annotations

from typing import Final

PERMITTED: Final = ("exact", "any")
"""Whether devices that change results may run: not with "exact", the default."""
