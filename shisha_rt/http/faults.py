"""Errors as HTTP answers: a status, and the body `{"error": one line of text, "kind": the error's kind}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from shisha_rt.errors import Code, Error
from shisha_rt.protocol.exceptions import ShishaError

STATUS_OF: Final[Mapping[Code, int]] = {
    Code.INVALID_ARGUMENT: 400,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.DEADLINE_EXCEEDED: 504,
    Code.CANCELLED: 499,
    Code.FAILED_PRECONDITION: 409,
    Code.PERMISSION_DENIED: 403,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.INTERNAL: 500,
}
_KIND_OF: Final[Mapping[int, Error]] = {
    400: Error.MALFORMED_REQUEST,
    401: Error.UNKNOWN_TOKEN,
    403: Error.FOREIGN_CALLER,
    404: Error.NOT_HERE,
    405: Error.NOT_OFFERED,
    408: Error.TOO_SLOW,
    409: Error.NOT_OFFERED,
    413: Error.REQUEST_TOO_LARGE,
    415: Error.NOT_OFFERED,
    421: Error.FOREIGN_CALLER,
    431: Error.REQUEST_TOO_LARGE,
    500: Error.FAILED,
    501: Error.NOT_OFFERED,
    503: Error.CONNECTION_LOST,
    505: Error.NOT_OFFERED,
}
"""The kind of an error of which only the status is known."""
CLIENT_CLOSED: Final = 499
"""The status under which metrics count a request whose caller disconnected before the answer."""
OUR_FAULT: Final = "a fault of the daemon's HTTP process"
"""What callers are told of an unexpected error; the log has the rest."""
_HEADERS_OF: Final = {
    401: ((b"www-authenticate", b"Bearer"),),
    **dict.fromkeys((429, 503), ((b"retry-after", b"1"),)),
}


class HttpFault(Exception):
    """An error answer. `kind`: by default the status's; `allow`: the methods that the request's path allows."""

    def __init__(self, status: int, message: str, kind: str | None = None, allow: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = _KIND_OF[status] if kind is None else kind
        self._allow = ", ".join(allow)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        allow = [(b"allow", self._allow.encode())] if self._allow else []
        return [(b"content-type", b"application/json"), *_HEADERS_OF.get(self.status, ()), *allow]

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.message, "kind": self.kind})


def fault_of(error: ShishaError) -> HttpFault:
    """`error` as an HTTP answer. HTTP has a status of its own for an unknown caller (401); `Code` has not."""
    return HttpFault(401 if error.kind == Error.UNKNOWN_TOKEN else STATUS_OF[error.code], error.message, error.kind)
