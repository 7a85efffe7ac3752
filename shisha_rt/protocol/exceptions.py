"""Exceptions of requests without a result: one for each gRPC code, and `Timeout`; made by `error_for` and `error_of`.

All are `ShishaError`, so one `except` catches every failure of the daemon or the connection, and nothing else. The
daemon raises them for requests that it refuses; a client's call raises the one that an error answer describes. Clients
make `Timeout` themselves.
"""

from __future__ import annotations

from typing import ClassVar, Final

from shisha_rt.errors import Code, Error


class ShishaError(Exception):
    """A request that brought no result.

    `kind`: a name in `shisha_rt.errors.Error`, or one that only a newer daemon has; empty if the daemon sent none.
    `request_id`: None if the request got no id, or its id could not be read.
    """

    code: ClassVar[Code] = Code.INTERNAL

    def __init__(self, message: str, request_id: str | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id
        self.kind = kind


class InvalidArgument(ShishaError):
    """The request is not valid for this model or daemon. Sent again as it is, it fails again."""

    code = Code.INVALID_ARGUMENT


class NotFound(ShishaError):
    """There is no such model, version, output or operation."""

    code = Code.NOT_FOUND


class ResourceExhausted(ShishaError):
    """The daemon is at a limit, such as of frames in flight. Send less at once, or later."""

    code = Code.RESOURCE_EXHAUSTED


class DeadlineExceeded(ShishaError):
    """The frame's own deadline passed, as the daemon reports; or, over HTTP and gRPC, the request came too slowly."""

    code = Code.DEADLINE_EXCEEDED


class Cancelled(ShishaError):
    """The frame was cancelled by `cancel`, or because its connection was closed."""

    code = Code.CANCELLED


class FailedPrecondition(ShishaError):
    """The request is valid, but not in the state that the daemon or the client is in."""

    code = Code.FAILED_PRECONDITION


class PermissionDenied(ShishaError):
    """The daemon does not know the caller, or does not allow this operation to it."""

    code = Code.PERMISSION_DENIED


class Unimplemented(ShishaError):
    """The daemon has no such operation, or it is turned off."""

    code = Code.UNIMPLEMENTED


class Unavailable(ShishaError):
    """No daemon is there, it is shutting down, or it was lost with the request in flight, which may have been run."""

    code = Code.UNAVAILABLE


class Internal(ShishaError):
    """A stage failed on this frame, or the daemon failed otherwise; the message has the cause."""

    code = Code.INTERNAL


# Before `Timeout` is defined, which is not the class for its code.
_OF_CODE: Final = {kind.code.value: kind for kind in ShishaError.__subclasses__()}


class Timeout(ShishaError, TimeoutError):
    """The client stopped waiting for a daemon that is there. A frame that was in flight is cancelled, if possible."""

    code = Code.DEADLINE_EXCEEDED


def error_for(kind: Error, message: str, request_id: str | None = None) -> ShishaError:
    """Return the exception of the class that belongs to the gRPC code of `kind`."""
    return _OF_CODE[kind.code.value](message, request_id, kind)


def error_of(code: str, message: str, request_id: str, kind: str = "") -> ShishaError:
    """The exception for an error answer. An unknown code, of a newer daemon, becomes an `Internal` that names it."""
    made = _OF_CODE.get(code)
    return made(message, request_id, kind) if made else Internal(f"{code}: {message}", request_id, kind)
