"""Errors in HTTP's form: what a caller can see without reading the answer."""

from __future__ import annotations

import pytest

from shisha_rt.errors import Error
from shisha_rt.http.faults import HttpFault, fault_of
from shisha_rt.protocol.exceptions import error_for


def statuses_with(header: bytes) -> set[int]:
    """Those of all kinds of errors whose answers have the header."""
    faults = [fault_of(error_for(kind, "why")) for kind in Error]
    return {fault.status for fault in faults if header in dict(fault.headers)}


def test_whoever_may_try_again_is_told_when() -> None:
    assert statuses_with(b"retry-after") == {429, 503}


def test_a_caller_who_is_unknown_is_told_apart_from_one_who_may_not() -> None:
    assert statuses_with(b"www-authenticate") == {401}
    assert fault_of(error_for(Error.FOREIGN_CALLER, "why")).status == 403


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Error.UNKNOWN_TOKEN),
        (404, Error.NOT_HERE),
        (405, Error.NOT_OFFERED),
        (408, Error.TOO_SLOW),
        (413, Error.REQUEST_TOO_LARGE),
        (431, Error.REQUEST_TOO_LARGE),
        (500, Error.FAILED),
    ],
)
def test_a_fault_that_http_alone_knows_has_a_kind_too(status: int, kind: Error) -> None:
    assert HttpFault(status, "why").kind == kind
