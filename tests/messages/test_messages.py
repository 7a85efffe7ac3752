"""Every message survives the crossing; anything else is refused."""

from __future__ import annotations

import msgspec
import pytest

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages import worker as m
from shisha_rt.process.lent import LentPiece

PART = Descriptor(3, 2**40, 1, 2, 5, 0)
RUN = m.Run(PART, 0, 2**60)
LENT = m.Run(PART, 0, 2**60, (LentPiece("x", 1, 0, 4096),), (LentPiece("y", 1, 4096, 4096),))
PLACED = m.Prepare(5, 1, ((2, 3),), placement=("cpu_s", "cpu_s", "pim"))


@pytest.mark.parametrize(
    "message", [m.Prepare(5, 1, ((2, 3),), 0.012), PLACED, RUN, LENT, m.Retire(5), m.Lend(7), m.TakeBack(7)]
)
def test_to_worker(message: m.ToWorker) -> None:
    assert m.TO_WORKER.decode(m.TO_WORKER.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        m.Ready(3),
        m.Prepared(5, 1, 3, 0.004, 0.02, 4096, 10**9),
        m.PrepareFailed(5, 1, 3, "no room"),
        m.PrepareFailed(5, 1, 3, "time_scale = 1: too small", bad_machine=True),
        m.Done(PART, 0.001, 0.0009, 0.0, 0.5),
        m.Done(PART, 0.001, 0.0009, 0.0, segments_s=(0.0004, 0.0005)),
        m.Failed(PART, "RuntimeError: overflow"),
    ],
)
def test_from_worker(message: m.FromWorker) -> None:
    assert m.FROM_WORKER.decode(m.FROM_WORKER.encode(message)) == message


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode(["Ready", "three"]), b"\x93"])
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        m.FROM_WORKER.decode(data)
    with pytest.raises(msgspec.MsgspecError):
        m.TO_WORKER.decode(data)
