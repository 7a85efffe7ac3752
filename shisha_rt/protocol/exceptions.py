"""What a client's call can raise: one exception for each code, and `Timeout`.

All are `ShishaError`, so one `except` catches whatever the daemon or the way to it did, and nothing else.
"""

from __future__ import annotations

from typing import ClassVar, Final

from shisha_rt.core.codes import Code


class ShishaError(Exception):
    """A request that brought no result. `request_id` is None where it failed before it was sent."""

    code: ClassVar[Code] = Code.INTERNAL

    def __init__(self, message: str, request_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id


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


def error_of(code: str, message: str, request_id: str) -> ShishaError:
    """The exception for an error answer. A code of a newer daemon becomes `Internal` that names it."""
    kind = _OF_CODE.get(code)
    return kind(message, request_id) if kind else Internal(f"{code}: {message}", request_id)
