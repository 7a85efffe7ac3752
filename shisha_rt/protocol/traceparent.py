"""W3C's `traceparent`: which trace a request belongs to, according to its caller. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1


class TraceParent(NamedTuple):
    """Ids in hexadecimal. `sampled`: the caller records its part of the trace, and wants ours, too."""

    trace_id: str
    span_id: str
    sampled: bool


def read_traceparent(text: str) -> TraceParent | None:
    """Parse `text`; None if it is malformed: the standard says to ignore it then."""
    match = _FORM.fullmatch(text)
    if match is None or (match[4] and text.startswith("00")):
        return None
    return TraceParent(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))
