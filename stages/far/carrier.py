"""A line that carries messages with tensors beside them, in order, both ways, between a relay and its far end.

It is a pair of ZeroMQ sockets over TCP, each of which identifies the other by its key (CURVE): that costs about 1 ms of
CPU a megabyte at each end more than plain TCP, and no third party can read or change the messages. The far end listens,
and admits one key only (ZAP). A line ends with its connection and does not reconnect: nobody knows which messages were
delivered when the connection broke.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from shisha_rt.process.codec import Codec, MessageT
from shisha_rt.process.readable import await_ready

LARGEST_BYTES: Final = 256 << 20
"""Default limit for a message or a tensor."""

_SEALING_BYTES: Final = 1 << 10  # more than CURVE adds to each
_COPIED_BYTES: Final = 1 << 20  # below, a copy costs less than to track when a sent buffer is free again
_HANDSHAKE_MS: Final = 5000
_FIRST_LOOKS_S: Final = 5e-3
_NEVER_MS: Final = 86_400_000  # no reconnection; if disabled outright (-1), libzmq (4.3.5) drops unread messages
_MOST_WAITING: Final = 1000
_DOMAIN: Final = b"far"
_ENDED: Final = {
    zmq.EVENT_DISCONNECTED: "the connection ended",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the connection could not be made",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "the other end speaks something else",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the other end does not know this one's key",
    zmq.EVENT_CLOSED: "the other end cannot be reached",
    zmq.EVENT_CONNECT_RETRIED: "the other end cannot be reached",
}


class CarrierBroken(Exception):
    """No message can be sent or received any more; one line says why."""


class Carried(NamedTuple):
    """A message, and the bytes of each tensor beside it, which are valid until the next message is taken."""

    data: bytes
    tensors: Sequence[memoryview]

    def message(self, codec: Codec[MessageT]) -> MessageT:
        """The message decoded. Raises CarrierBroken if it is none of the codec's."""
        try:
            return codec.decode(self.data)
        except msgspec.MsgspecError as error:
            raise CarrierBroken(f"a message came that is none: {error}") from None


class Carrier:
    """One end, connected or yet to be, used by one thread. `key`: its public key (Z85).

    `largest_bytes`: a larger message ends the connection before memory is allocated for it; also a stranger's, whom
    libzmq has not asked for a key yet.
    """

    def __init__(self, largest_bytes: int = LARGEST_BYTES) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        public, self._secret = zmq.curve_keypair()
        self.key = public.decode()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.copy_threshold = _COPIED_BYTES
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.MAXMSGSIZE, largest_bytes + _SEALING_BYTES)
        self._socket.set(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        self._socket.set(zmq.RCVHWM, _MOST_WAITING)
        self._socket.set(zmq.SNDHWM, _MOST_WAITING)
        self._socket.set(zmq.RECONNECT_IVL, _NEVER_MS)
        self._socket.set(zmq.CURVE_PUBLICKEY, public)
        self._socket.set(zmq.CURVE_SECRETKEY, self._secret)
        self._monitor = self._socket.get_monitor_socket()
        self._broken: str | None = None
        self._met = self._joined = False

    def filenos(self) -> Sequence[int]:
        """Descriptors to poll: once one is readable, take messages until none is left."""
        return [self._socket.fileno(), self._monitor.fileno()]

    @property
    def connected(self) -> bool:
        """Whether the other end has connected, and messages can be sent to it."""
        if not self._joined and self._met:  # the monitor reports the handshake a little earlier
            self._joined = self._takes
        return self._joined

    def await_connected(self, patience_s: float, or_else: str) -> None:
        """Wait until `connected`. Raises CarrierBroken, after `patience_s` with this reason."""
        until_s = time.monotonic() + patience_s
        while not self.connected:
            if time.monotonic() > until_s:
                raise CarrierBroken(or_else)
            self.look()
            await_ready(self.filenos(), _FIRST_LOOKS_S)

    @property
    def _takes(self) -> bool:
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def send(self, data: bytes, tensors: Sequence[memoryview] = ()) -> None:
        """Send in order, without waiting. Tensors must not change until the other end has answered. Raises
        CarrierBroken, also if too many messages wait because the other end does not read.
        """
        if self._broken is not None:
            raise CarrierBroken(self._broken)
        try:
            self._socket.send_multipart([data, *tensors], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._look()
            raise self._breaks(self._broken or "the other end does not read") from None
        except zmq.ZMQError as error:
            raise self._breaks(f"a message could not be sent: {error.strerror}") from None

    def take(self) -> Carried | None:
        """The next message, if any. Raises CarrierBroken once the other end is gone, after its last message."""
        if not self._socket.closed:
            with contextlib.suppress(zmq.Again):
                data, *tensors = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
                return Carried(data.bytes, [frame.buffer for frame in tensors])
        if self._broken is None:
            self._look()
            if self._broken is not None:
                return self.take()  # a message from before the end
            return None
        raise CarrierBroken(self._broken)

    def look(self) -> None:
        self._look()
        if self._broken is not None:
            raise CarrierBroken(self._broken)

    def _look(self) -> None:
        while self._monitor.poll(0):
            self._note(parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))["event"])

    def _note(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._met = True
        elif event in _ENDED and self._broken is None:
            self._broken = _ENDED[zmq.Event(event)]

    def _breaks(self, reason: str) -> CarrierBroken:
        self._broken = self._broken or reason
        return CarrierBroken(self._broken)

    def close(self) -> None:
        self._broken = self._broken or "this end is closed"
        if self._socket.closed:
            return
        self._socket.disable_monitor()
        self._socket.close()
        self._monitor.close()
        self._context.destroy(linger=0)


class NearEnd(Carrier):
    """The relay's end."""

    def connect(self, endpoint: str, far_key: str) -> None:
        """Connect to the far end that has this key. Raises CarrierBroken."""
        try:
            self._socket.set(zmq.CURVE_SERVERKEY, far_key.encode())
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise self._breaks(f"{endpoint}: {error.strerror}") from None


class FarEnd(Carrier):
    """The far end's end, which listens at `address` for the owner of `near_key`. Raises CarrierBroken.

    It keeps listening, and refuses later connections: libzmq would close the connection with its listener.
    """

    def __init__(self, address: str, near_key: str, largest_bytes: int = LARGEST_BYTES) -> None:
        super().__init__(largest_bytes)
        self._admitted = z85.decode(near_key)
        self._somebody_left = False
        self._zap: zmq.Socket[bytes] = self._context.socket(zmq.REP)
        self._zap.set(zmq.LINGER, 0)
        self._zap.bind("inproc://zeromq.zap.01")
        self._socket.set(zmq.CURVE_SERVER, 1)
        self._socket.set(zmq.ZAP_DOMAIN, _DOMAIN)
        try:
            self._socket.bind(f"tcp://{address}:*")
        except zmq.ZMQError as error:
            self.close()
            raise CarrierBroken(f"{address}: it cannot be listened at: {error.strerror}") from None
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def filenos(self) -> Sequence[int]:
        return [*super().filenos(), self._zap.fileno()]

    def _look(self) -> None:
        """Answer handshakes for as long as this end exists: a pending one would leave its descriptor readable."""
        self._answer_handshakes()
        super()._look()
        if self._somebody_left and self._broken is None and not self._takes:
            self._broken = _ENDED[zmq.EVENT_DISCONNECTED]

    def _note(self, event: int) -> None:
        """Note an event. As strangers connect too, the monitor does not tell whose connection has ended: it was the
        relay's if nothing can be sent any more.
        """
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            super()._note(event)
        elif event == zmq.EVENT_DISCONNECTED:
            self._somebody_left = self._joined

    def _answer_handshakes(self) -> None:
        """Answer by ZeroMQ's RFC 27. A request: version, number, domain, address, identity, mechanism, client's key."""
        while True:
            try:
                request: list[Any] = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            version, number = request[:2]
            admitted = request[2] == _DOMAIN and request[5:] == [b"CURVE", self._admitted]
            if admitted:
                self._admitted = b""  # the key is admitted once
            status = (b"200", b"OK") if admitted else (b"400", b"unknown key")
            self._zap.send_multipart([version, number, *status, b"", b""])

    def close(self) -> None:
        self._zap.close()
        super().close()
