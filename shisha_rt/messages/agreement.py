"""What a second engine makes of a model, and how far its answers lie from the first's: a JSON line of a job."""

from __future__ import annotations

import msgspec


class Agreement(msgspec.Struct, frozen=True):
    """`runs`: whether it answers at all; where it does not, or answers in other shapes, `reason` says it in a line.

    `difference`: the largest of any output's elements, as part of that output's largest; None where there is none.
    """

    runs: bool
    difference: float | None = None
    reason: str = ""
