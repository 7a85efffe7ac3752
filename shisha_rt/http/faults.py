"""What can go wrong, as HTTP says it: a status, and `{"error": "..."}` in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from shisha_rt.errors import Code
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
_WAIT_S: Final = {429: b"1", 503: b"1"}


class HttpFault(Exception):
    """A request that ends in an error answer of this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def fault_of(error: ShishaError) -> HttpFault:
    return HttpFault(STATUS_OF[error.code], error.message)


def fault_answer(fault: HttpFault) -> Response:
    headers = {"Retry-After": _WAIT_S[fault.status].decode()} if fault.status in _WAIT_S else {}
    body = msgspec.json.encode({"error": fault.message})
    return Response(body, fault.status, headers, media_type="application/json")
