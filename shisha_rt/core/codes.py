"""The names of what can go wrong, for programs. gRPC's names, so that nobody has to learn new ones.

A code tells a client what it may do next: mend the request (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED), send
less at once (RESOURCE_EXHAUSTED), wait (UNAVAILABLE, FAILED_PRECONDITION), or report it (INTERNAL). The message
beside it is for people: one line, never an internal name.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


class WireError(Exception):
    """A request that ends in an error answer. `request_id` is None where the request's id could not be read."""

    def __init__(self, code: Code, message: str, request_id: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.request_id = request_id
