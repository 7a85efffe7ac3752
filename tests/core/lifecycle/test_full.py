"""When every frame is refused, as other processes are told so that they refuse it themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shisha_rt.core.lifecycle.events import FrameArrived
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.streams import Streams

POLICY = Policy(max_in_flight=4, waiting_bytes=100)


@given(
    undelivered=st.integers(0, 9),
    waiting_bytes=st.integers(190, 210),
    size_bytes=st.sampled_from([0, 1, 500]),
    frames=st.integers(1, 3),
)
def test_whoever_comes_is_refused_then_and_only_then_a_client_that_has_nothing(
    undelivered: int, waiting_bytes: int, size_bytes: int, frames: int
) -> None:
    streams = Streams(POLICY)
    streams.undelivered, streams.waiting_bytes = undelivered, waiting_bytes
    arrived = FrameArrived(1, "new", None, size_bytes, frames=frames)
    refusal = streams.refusal(arrived, streams.of(arrived))
    if streams.is_full:
        assert refusal is not None
    elif frames == 1 and waiting_bytes < 2 * POLICY.waiting_bytes:
        assert refusal is None
