"""Which devices may run. Apart from what devices are: a command's help names it, and loads nothing for that."""

from __future__ import annotations

from typing import Final

PERMITTED: Final = ("exact", "any")
"""Whether devices may run that change results: by default they may not."""
