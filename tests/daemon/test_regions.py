"""Regions that clients are lent: who may name them, how many there may be, and how long they stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shisha_rt.daemon.front.regions import LentRegion, Regions
from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import ShishaError
from shisha_rt.protocol.request import InferRequest, Lent


def asking(*pieces: Lent, out: bool = False) -> InferRequest:
    named = {f"t{i}": piece for i, piece in enumerate(pieces)}
    return InferRequest("1", None, None, None, {}, ("y",), 0, 0, {} if out else named, named if out else {})


def whole(region: LentRegion) -> Lent:
    return Lent(region.token, region.size_bytes)


def fails(regions: Regions, client: bytes, request: InferRequest) -> str:
    """The kind of the error."""
    with pytest.raises(ShishaError) as refused:
        regions.check(client, request)
    assert refused.value.request_id == "1"
    return refused.value.kind


def is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").exists()


def test_a_region_is_the_first_clients_that_names_it() -> None:
    regions = Regions(16, 1 << 20)
    first, other = regions.create(1, 4096), regions.create(1, 4096)
    regions.check(b"a", asking(whole(first)))
    assert fails(regions, b"b", asking(whole(other), whole(first))) == Error.UNKNOWN_REGION
    regions.check(b"b", asking(whole(other)))  # what was refused has taken nothing
    assert fails(regions, b"a", asking(whole(other), out=True)) == Error.UNKNOWN_REGION
    regions.close()


@pytest.mark.parametrize("out", [False, True])
def test_a_piece_lies_within_its_region(out: bool) -> None:
    regions = Regions(16, 1 << 20)
    region = regions.create(1, 4096)
    for fits in (Lent(region.token, 4096), Lent(region.token, 0, 4096), Lent(region.token, 1, 4095)):
        regions.check(b"a", asking(fits, out=out))
    for size_bytes, offset_bytes in ((4097, 0), (1, 4096), (4096, 1), (1, 2**63 - 1), (2**63 - 1, 2**63 - 1)):
        piece = Lent(region.token, size_bytes, offset_bytes)
        assert fails(regions, b"a", asking(piece, out=out)) == Error.REGION_TOO_SMALL
    regions.close()


def test_it_stays_until_its_last_frame_is_answered() -> None:
    regions = Regions(16, 1 << 20)
    region = regions.create(1, 4096)
    request = asking(whole(region), whole(region))
    regions.check(b"a", request)
    first, second = regions.hold(request.lent_in)
    regions.end(region)
    assert fails(regions, b"a", request) == Error.UNKNOWN_REGION
    regions.release([first])
    assert is_open(region.fd)
    assert os.pwrite(region.fd, b"x", 0) == 1
    assert regions.left == []
    regions.release([second])
    assert regions.left == [region.number]
    assert regions.count == 0


def test_nobody_may_change_its_size() -> None:
    regions = Regions(16, 1 << 20)
    region = regions.create(1, 4096)
    for size_bytes in (0, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(region.fd, size_bytes)
    regions.close()
    assert not is_open(region.fd)


def test_one_client_has_half_and_others_find_room() -> None:
    regions = Regions(most=16, most_bytes=64 << 10)
    held = [regions.create(1, 1024) for _ in range(8)]
    for holder, size_bytes in ((1, 1024), (2, 40 << 10)):
        with pytest.raises(ShishaError) as refused:
            regions.create(holder, size_bytes)
        assert refused.value.kind == Error.REGION_REFUSED
    assert regions.create(2, 1024).size_bytes == 1024
    for region in held:
        regions.end(region)
    assert regions.count == 1
    assert regions.create(1, 28 << 10).size_bytes == 28 << 10
    regions.close()
