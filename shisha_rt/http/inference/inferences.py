"""The steps of an inference request: its tensors into shared memory, the frame to the daemon, outputs into regions.

HTTP and gRPC differ only in how bytes are received and sent; they share everything in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import numpy.typing as npt

from shisha_rt.client import AsyncClient
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.inference.answer import wanted
from shisha_rt.http.inference.request import InferenceAsked, array_of, longest_body
from shisha_rt.http.inference.shared_memory import FOLDER, SharedFiles
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.frame_tensors import Answer, raw_bytes
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_NAME_LENGTH
from shisha_rt.protocol.signature import Signature

ROOM_BYTES: Final = 256 << 20
"""The most memory for the bodies of all requests under way in this process."""

_LONGEST_S: Final = MAX_DEADLINE_MS / 1e3
_SLACK_S: Final = 30.0
"""How long after its deadline a frame may be answered: at its turn in the stream."""

Frame = dict[str, npt.NDArray[Any]]


class Room:
    """Limits the bytes of requests' bodies and of gRPC's answers in this process. A lone request is never refused."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.taken_bytes = 0

    @contextmanager
    def taken(self) -> Iterator[Callable[[int], None]]:
        """Yield what takes bytes until the context ends, and raises `ResourceExhausted` if others have too many."""
        own_bytes = 0

        def more(size_bytes: int) -> None:
            nonlocal own_bytes
            if self.taken_bytes > own_bytes and self.taken_bytes + size_bytes > self._limit_bytes:
                on_their_way = f"{self.taken_bytes} bytes of requests are on their way; send again later"
                raise error_for(Error.TOO_MANY_BYTES, on_their_way)
            self.taken_bytes += size_bytes
            own_bytes += size_bytes

        try:
            yield more
        finally:
            self.taken_bytes -= own_bytes


class Inferences:
    """What inference requests share, over HTTP and gRPC: a region registered over one can be used over the other.

    `room`: the limit on their bytes, over all connections.
    """

    def __init__(self, app_state: AppState) -> None:
        self.files = SharedFiles(FOLDER if app_state.settings.shared_memory else None)
        self.room = Room(ROOM_BYTES)
        self._longest_of: dict[str, tuple[Signature, int]] = {}

    def longest(self, signature: Signature) -> int:
        known, longest_bytes = self._longest_of.get(signature.model_name, (None, 0))
        if known is not signature:
            longest_bytes = longest_body(signature)
            self._longest_of[signature.model_name] = signature, longest_bytes
        return longest_bytes

    async def tensors(
        self,
        client: AsyncClient,
        asked: InferenceAsked,
        fill: Callable[[memoryview], Awaitable[None]],
        caller: Caller,
    ) -> Frame:
        """Read the inputs into memory shared with the daemon. `fill` writes the request's next bytes into its argument.

        Raises also if an output's region cannot be used, so that no frame is run in vain.
        """
        frame: Frame = {}
        for tensor in asked.inputs:
            if tensor.data:
                frame[tensor.name] = array_of(tensor)
                continue
            array = frame[tensor.name] = await client.empty(tensor.shape, tensor.dtype)
            if tensor.region is None:
                await fill(raw_bytes(array))
            else:
                self.files.read(caller, tensor.region, raw_bytes(array))
        for output in asked.outputs:
            if output.region is not None:
                self.files.find(caller, output.region)
        return frame

    async def infer(
        self,
        client: AsyncClient,
        asked: InferenceAsked,
        frame: Frame,
        caller: Caller,
        connection: str,
        traceparent: str | None,
    ) -> Answer:
        """Run the frame; cancelling this cancels it at the daemon, too. `traceparent`: as the caller sent it.

        To the daemon each connection is a caller of its own. A stream is one, too: its frames may come by several
        connections, and stay in order.

        The daemon alone decides when a frame is late. Waiting also ends when the caller hangs up, or the connection
        to the daemon is lost; a daemon that cannot be reached is given up before the frame is sent.
        """
        stream = None if asked.parameters.stream_name is None else _stream_of(caller.name, asked.parameters.stream_name)
        return await client.infer(
            frame,
            deadline_s=asked.parameters.deadline_s,
            timeout_s=_SLACK_S + (_LONGEST_S if asked.parameters.deadline_s is None else asked.parameters.deadline_s),
            stream=stream,
            caller=stream or connection[:MAX_NAME_LENGTH],
            sequence=asked.parameters.sequence,
            priority=asked.parameters.priority or 0,
            outputs=[output.name for output in asked.outputs],
            traceparent=None if traceparent is None else traceparent[:MAX_NAME_LENGTH],
        )

    def write(self, asked: InferenceAsked, answer: Answer, caller: Caller) -> None:
        """Write outputs to the regions in which the request wants them."""
        for output in wanted(asked, answer):
            if output.region is not None:
                self.files.write(caller, output.region, raw_bytes(answer.outputs[output.name]))


def _stream_of(user: str, stream: str) -> str:
    """The name at the daemon of a user's stream: unique, and no longer than the wire allows.

    The user's part is quoted, so that it ends at the first slash. A long name is sent as its hash, which has no slash
    and so is no other stream's name.
    """
    name = f"{quote(user, safe='')}/{stream}"
    return name if len(name) <= MAX_NAME_LENGTH else hashlib.sha256(name.encode()).hexdigest()
