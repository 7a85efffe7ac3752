"""Exceptions of requests without a result: one for each gRPC code, and `Timeout`; made by `error_for` and `error_of`.

All are `ShishaError`, so one `except` catches every failure of the daemon or the connection, and nothing else. The
daemon raises them for requests that it refuses; a client's call raises the one that an error answer describes. Clients
make `Timeout` themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from shisha_rt.errors import Code, Error

_OF_CODE: Final[dict[str, type[ShishaError]]] = {}
"""The class whose exceptions stand for a gRPC code."""


class ShishaError(Exception):
    """A request that brought no result. A subclass that is given a `code` is the class for that code.

    `kind`: a name in `shisha_rt.errors.Error`, or one that only a newer daemon has; empty if the daemon sent none.
    `request_id`: None if the request got no id, or its id could not be read.
    """

    code: ClassVar[Code] = Code.INTERNAL

    def __init_subclass__(cls, code: Code | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            _OF_CODE[code.value] = cls

    def __init__(self, message: str, request_id: str | None = None, kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id
        self.kind = kind


class InvalidArgument(ShishaError, code=Code.INVALID_ARGUMENT):
    """The request is not valid for this model or daemon. Sent again as it is, it fails again."""


class NotFound(ShishaError, code=Code.NOT_FOUND):
    """There is no such model, version, output or operation."""


class ResourceExhausted(ShishaError, code=Code.RESOURCE_EXHAUSTED):
    """The daemon is at a limit, such as of frames in flight. Send less at once, or later."""


class DeadlineExceeded(ShishaError, code=Code.DEADLINE_EXCEEDED):
    """The frame's own deadline passed, as the daemon reports; or, over HTTP and gRPC, the request came too slowly."""


class Cancelled(ShishaError, code=Code.CANCELLED):
    """The frame was cancelled by `cancel`, or because its connection was closed."""


class FailedPrecondition(ShishaError, code=Code.FAILED_PRECONDITION):
    """The request is valid, but not in the state that the daemon or the client is in."""


class PermissionDenied(ShishaError, code=Code.PERMISSION_DENIED):
    """The daemon does not know the caller, or does not allow this operation to it."""


class Unimplemented(ShishaError, code=Code.UNIMPLEMENTED):
    """The daemon has no such operation, or it is turned off."""


class Unavailable(ShishaError, code=Code.UNAVAILABLE):
    """No daemon is there, it is shutting down, or it was lost with the request in flight, which may have been run."""


class Internal(ShishaError, code=Code.INTERNAL):
    """A stage failed on this frame, or the daemon failed otherwise; the message has the cause."""


class Timeout(ShishaError, TimeoutError):
    """The client stopped waiting for a daemon that is there. A frame that was in flight is cancelled, if possible."""

    code = Code.DEADLINE_EXCEEDED


def error_for(kind: Error, message: str, request_id: str | None = None) -> ShishaError:
    """Return the exception of the class that belongs to the gRPC code of `kind`."""
    return _OF_CODE[kind.code.value](message, request_id, kind)


def malformed(message: str, request_id: str | None = None) -> ShishaError:
    return error_for(Error.MALFORMED_REQUEST, message, request_id)


def unknown_model(name: str, models: Iterable[str]) -> ShishaError:
    """`models`: the names of those that are served."""
    expected = " or ".join(map(repr, models)) or "one that is loaded first"
    return error_for(Error.UNKNOWN_MODEL, f"no model {name!r} is served; expected {expected}")


def error_of(code: str, message: str, request_id: str, kind: str = "") -> ShishaError:
    """The exception for an error answer. An unknown code, of a newer daemon, becomes an `Internal` that names it."""
    made = _OF_CODE.get(code)
    return made(message, request_id, kind) if made else Internal(f"{code}: {message}", request_id, kind)
