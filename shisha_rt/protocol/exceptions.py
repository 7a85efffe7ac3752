"""A request that brings no result: one exception for each gRPC code, and `Timeout`; made by `error_for` alone.

All are `ShishaError`, so one `except` catches whatever the daemon or the way to it did, and nothing else. The daemon
raises them for requests that it refuses, and a client's call raises what their answers carry.
"""

from __future__ import annotations

from typing import ClassVar, Final

from shisha_rt.errors import Code, Error


class ShishaError(Exception):
    """A request that brought no result.

    `kind`: a name of `shisha_rt.errors.Error`, or one of a newer daemon's; empty from a daemon that has none.
    `request_id` is None where it failed before it was sent, or its id could not be read.
    """

    code: ClassVar[Code] = Code.INTERNAL

    def __init__(self, message: str, request_id: str | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id
        self.kind = kind


class InvalidArgument(ShishaError):
    code = Code.INVALID_ARGUMENT


class NotFound(ShishaError):
    code = Code.NOT_FOUND


class ResourceExhausted(ShishaError):
    """The daemon has as much in flight as it takes. Send less at once, or later."""

    code = Code.RESOURCE_EXHAUSTED


class DeadlineExceeded(ShishaError):
    """The daemon says that the frame's own deadline passed."""

    code = Code.DEADLINE_EXCEEDED


class Cancelled(ShishaError):
    code = Code.CANCELLED


class FailedPrecondition(ShishaError):
    code = Code.FAILED_PRECONDITION


class PermissionDenied(ShishaError):
    code = Code.PERMISSION_DENIED


class Unimplemented(ShishaError):
    code = Code.UNIMPLEMENTED


class Unavailable(ShishaError):
    """The daemon is not there, is going, or went while the request was with it. The request may have been run."""

    code = Code.UNAVAILABLE


class Internal(ShishaError):
    code = Code.INTERNAL


class Timeout(ShishaError, TimeoutError):
    """The client stopped waiting. The daemon was there; if it had a frame, it was asked to cancel it."""

    code = Code.DEADLINE_EXCEEDED


_OF_CODE: Final[dict[str, type[ShishaError]]] = {
    kind.code.value: kind
    for kind in (
        InvalidArgument,
        NotFound,
        ResourceExhausted,
        DeadlineExceeded,
        Cancelled,
        FailedPrecondition,
        PermissionDenied,
        Unimplemented,
        Unavailable,
        Internal,
    )
}


def error_for(kind: Error, message: str, request_id: str | None = None) -> ShishaError:
    return _OF_CODE[kind.code.value](message, request_id, kind)


def error_of(code: str, message: str, request_id: str, kind: str = "") -> ShishaError:
    """The exception for an error answer. A code of a newer daemon becomes `Internal` that names it."""
    made = _OF_CODE.get(code)
    return made(message, request_id, kind) if made else Internal(f"{code}: {message}", request_id, kind)
