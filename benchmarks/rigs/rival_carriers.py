"""Alternatives to the project's carrier, see `stages.far.carrier`. Of these only TLS encrypts."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import struct
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import zmq

from stages.far.carrier import Carried, Carrier, CarrierBroken

_HEAD: Final = struct.Struct("<QQ")
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TcpCarrier:
    """A carrier over TCP: two sizes, a message, and one tensor or none. `waiting`: it waits for room to send."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._out: deque[memoryview] = deque()
        self._head = memoryview(bytearray(_HEAD.size))
        self._body: memoryview | None = None
        self._room = bytearray()
        self._have_bytes = 0

    def filenos(self) -> Sequence[int]:
        return [self._socket.fileno()]

    @property
    def waiting(self) -> bool:
        return bool(self._out)

    def send(self, data: bytes, tensors: Sequence[memoryview] = ()) -> None:
        head = _HEAD.pack(len(data), sum(tensor.nbytes for tensor in tensors)) + data
        self._out.extend([memoryview(head), *(tensor.cast("B") for tensor in tensors)])
        self._flush()

    def take(self) -> Carried | None:
        self._flush()
        if self._body is None:
            if not self._fill(self._head):
                return None
            size_bytes = sum(_HEAD.unpack(self._head))
            if len(self._room) < size_bytes:
                self._room = bytearray(size_bytes)
            self._body = memoryview(self._room)[:size_bytes]
        if not self._fill(self._body):
            return None
        body, self._body = self._body, None
        data_bytes, tensor_bytes = _HEAD.unpack(self._head)
        return Carried(bytes(body[:data_bytes]), [body[data_bytes:]] if tensor_bytes else [])

    def _fill(self, room: memoryview) -> bool:
        """Receive into `room`; return whether it is full."""
        while self._have_bytes < room.nbytes:
            try:
                got = self._socket.recv_into(room[self._have_bytes :])
            except _NOT_NOW:
                return False
            if not got:
                raise CarrierBroken("the other end is gone")
            self._have_bytes += got
        self._have_bytes = 0
        return True

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._send()
            except _NOT_NOW:
                return
            while sent:
                piece = self._out.popleft()
                if sent < piece.nbytes:
                    self._out.appendleft(piece[sent:])
                sent -= min(sent, piece.nbytes)

    def _send(self) -> int:
        """Send some of the waiting data; return how many bytes."""
        return self._socket.sendmsg(list(itertools.islice(self._out, 8)))

    def close(self) -> None:
        self._socket.close()


class TlsCarrier(TcpCarrier):
    """The same with TLS 1.3 by OpenSSL. As in the project's own carrier, only one end is authenticated by its key: here
    the remote one, which makes the key.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_socket(connection, server_side=context.verify_mode == ssl.CERT_NONE)
        super().__init__(self._tls)

    def _send(self) -> int:
        return self._tls.send(self._out[0])


def far_context(folder: Path) -> tuple[ssl.SSLContext, str]:
    """The remote end's context, with a new key in `folder`, and its certificate (PEM) for the other end."""
    key, certificate = folder / "key", folder / "certificate"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=far", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate.read_text()


def near_context(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


class PlainZmqCarrier:
    """A pair of ZeroMQ sockets, as in the project's own carrier, without keys and without monitoring the connection."""

    def __init__(self, *, listen: str | None = None, connect: str | None = None) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set(zmq.LINGER, 0)
        if listen is not None:
            self._socket.bind(f"tcp://{listen}:*")
        if connect is not None:
            self._socket.connect(connect)
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def filenos(self) -> Sequence[int]:
        return [self._socket.fileno()]

    def send(self, data: bytes, tensors: Sequence[memoryview] = ()) -> None:
        self._socket.send_multipart([data, *tensors], zmq.NOBLOCK, copy=False)

    def take(self) -> Carried | None:
        with contextlib.suppress(zmq.Again):
            data, *tensors = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            return Carried(data.bytes, [frame.buffer for frame in tensors])
        return None

    def close(self) -> None:
        self._context.destroy(linger=0)


AnyCarrier: TypeAlias = Carrier | PlainZmqCarrier | TcpCarrier
