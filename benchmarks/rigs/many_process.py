"""Hundreds of cheap connections of one process: the clients of an overloaded daemon.

They use ZMTP (ZeroMQ's own protocol) or HTTP over plain sockets, polled by one epoll, with requests encoded once: no
client library slows them down, and a thousand use little of the cores that they share with the daemon. Their manners:

- `honest`: sends frames, and reads and checks every answer;
- `deaf`: sends frames and never reads; `trickling`: reads a byte now and then;
- `half`: has connected, and sends nothing, half a greeting, or half a message.

Frames are sent at a rate, even if answers are outstanding, each by the next free connection: one that has sent its last
request completely and, over HTTP, has been answered. A connection that the daemon closes is opened again. Settings:
`endpoint` (ZeroMQ's), `port` (HTTP's; null: use ZeroMQ). Orders: see `Crowd`.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from benchmarks.rigs.child_process import Child, Fields, obey
from benchmarks.rigs.http_process import infer, length
from shisha_rt.cli.drive.frames import model_inputs, random_frames
from shisha_rt.client import Client

HONEST, DEAF, TRICKLING, HALF = "honest", "deaf", "trickling", "half"
_KINDS: Final = 8
"""So many different frames take turns, so that an answer to another client's request is detected."""
_WARM_UP_S: Final = 1.0
_TURN_S: Final = 0.004
_TRICKLE_S: Final = 0.5
_AGAIN_S: Final = 0.5
_DRAIN_S: Final = 60.0
_MOST_AT_ONCE: Final = 256
_SMALL_BUFFER_BYTES: Final = 4096
_JOINED_BYTES: Final = 16 << 10
_READ_BYTES: Final = 256 << 10
_RTOL, _ATOL = 1e-4, 1e-5
_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY: Final = b"\x05READY\x0bSocket-Type" + (6).to_bytes(4, "big") + b"DEALER"
_HELLO: Final = _GREETING + bytes([_COMMAND, len(_READY)]) + _READY
_CLOSING: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

Heard = tuple[int | None, str, bytes]
"""An answer: the number of its request, if stated; "" or an error's code; the bytes of its tensors."""


class _ZmtpSpeech:
    """Parser of what one connection receives. `greeted`: requests may be sent; libzmq closes a connection on which they
    come before its own READY.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._parts: list[bytes] = []
        self._at = len(_GREETING)  # where the next frame begins
        self.greeted = False

    def take(self, data: bytes) -> Iterator[Heard]:
        self._data += data
        while len(self._data) >= self._at + 2:
            flags = self._data[self._at]
            size_bytes = 8 if flags & _LONG else 1
            begin = self._at + 1 + size_bytes
            end = begin + int.from_bytes(self._data[self._at + 1 : begin], "big")
            if len(self._data) < max(begin, end):
                break
            if flags & _COMMAND:
                self.greeted = True
            else:
                self._parts.append(bytes(self._data[begin:end]))
            self._at = end
            if not flags & (_COMMAND | _MORE):
                yield self._heard()
        if self._at <= len(self._data):
            del self._data[: self._at]
            self._at = 0

    def _heard(self) -> Heard:
        header, *tensors = self._parts
        self._parts = []
        if b'"error":{' in header:
            answer = json.loads(header)
            return int(answer["id"]), answer["error"]["code"], b""
        number = header.partition(b'"id":"')[2].partition(b'"')[0]
        return int(number or -1), "", b"".join(tensors)


class Zmtp:
    """ZMTP 3.0 without security, as a DEALER.

    `pipelines`: requests need not wait for answers. `beginnings`: what half-open connections send instead of `hello`;
    if it is `hello`, `half` follows. `filler`: a short request with a longer answer.
    """

    pipelines = True
    hello = _HELLO

    def __init__(self, endpoint: str, model: dict[str, Any], frames: Sequence[Sequence[bytes]]) -> None:
        url = urlsplit(endpoint)
        self.address = (url.hostname or "", url.port or 0)
        inputs = [
            {**tensor, "parameters": {"binary_data_size": len(raw)}}
            for tensor, raw in zip(model["inputs"], frames[0], strict=True)
        ]
        header = json.dumps({"op": "infer", "id": f"{0:010}", "model_name": model["name"], "inputs": inputs}).encode()
        before, _, after = header.partition(b"0" * 10)
        self._before = _heading(len(header), more=True) + before
        self._bodies = [
            after + b"".join(_heading(len(raw), more=raw is not frame[-1]) + raw for raw in frame) for frame in frames
        ]
        self.beginnings = (b"", _GREETING[:10], _GREETING, _HELLO)
        self.half = self._before + b"%010d" % 0 + self._bodies[0][: len(self._bodies[0]) // 2]
        status = json.dumps({"op": "status", "id": "0"}).encode()
        self.filler = _heading(len(status), more=False) + status

    def request(self, number: int, kind: int) -> list[bytes]:
        head, body = self._before + b"%010d" % number, self._bodies[kind]
        return [head + body] if len(body) < _JOINED_BYTES else [head, body]

    def speech(self) -> _ZmtpSpeech:
        return _ZmtpSpeech()


class _HttpSpeech:
    """As `_ZmtpSpeech`."""

    greeted = True

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> Iterator[Heard]:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n") + 4) > 3:
            head = bytes(self._data[:end])
            whole = end + length(head)
            if len(self._data) < whole:
                return
            body, status = bytes(self._data[end:whole]), head[9:12].decode()
            del self._data[:whole]
            yield None, "" if status == "200" else status, body


class Http:
    """HTTP/1.1 and the Open Inference Protocol, as `Zmtp`."""

    pipelines = False
    hello = half = filler = b""

    def __init__(self, port: int, model: dict[str, Any], frames: Sequence[Sequence[bytes]]) -> None:
        self.address = ("127.0.0.1", port)
        sizes = list(map(len, frames[0]))
        inputs = [
            {**tensor, "parameters": {"binary_data_size": size}}
            for tensor, size in zip(model["inputs"], sizes, strict=True)
        ]
        self._requests = [infer(model["name"], inputs, b"".join(frame)) for frame in frames]
        whole = self._requests[0]
        self.beginnings = (b"", whole[:20], whole[: len(whole) - sum(sizes) // 2])

    def request(self, number: int, kind: int) -> list[bytes]:
        return [self._requests[kind]]

    def speech(self) -> _HttpSpeech:
        return _HttpSpeech()


def _heading(size_bytes: int, *, more: bool) -> bytes:
    return bytes([_LONG | (_MORE if more else 0)]) + size_bytes.to_bytes(8, "big")


@dataclass(slots=True, eq=False)
class _Peer:
    """A connection. `out`: what is still to be sent; `waiting`: requests by number, and when they were sent."""

    manner: str
    kind: int
    socket: socket.socket
    speech: _ZmtpSpeech | _HttpSpeech
    out: deque[memoryview] = field(default_factory=deque)
    waiting: dict[int, float] = field(default_factory=dict)
    events: int = 0


@dataclass
class _Found:
    """Results of an order. `latency_ms`: counts of answers by latency in tenths of a millisecond."""

    sent: int = 0
    held_back: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    doubled: int = 0
    lost: int = 0
    cut_off: Counter[str] = field(default_factory=Counter)
    latency_ms: Counter[float] = field(default_factory=Counter)
    per_second: Counter[int] = field(default_factory=Counter)


class Crowd:
    """All connections. `expected`: the bytes of the answer to each kind of frame."""

    def __init__(self, language: Zmtp | Http, expected: list[bytes]) -> None:
        self._language = language
        self.expected = expected
        self._epoll = select.epoll()
        self._peers: dict[int, _Peer] = {}
        self._ready: deque[_Peer] = deque()
        self._again: list[tuple[float, str, int]] = []
        self._number = 0
        self._begin_s = 0.0
        self._found = _Found()

    def open(self, **manners: int) -> dict[str, object]:
        for manner, count in manners.items():
            for index in range(count):
                self._open(manner, index)
        until_s = time.monotonic() + _DRAIN_S
        while time.monotonic() < until_s and not all(
            peer.speech.greeted for peer in self._peers.values() if peer.manner != HALF
        ):
            self._turn()
        return {"open": len(self._peers)}

    def fill(self, count: int) -> dict[str, object]:
        """Make each deaf connection send `count` requests, whose answers then wait in the daemon."""
        for peer in [*self._peers.values()]:
            if peer.manner == DEAF and self._language.filler:
                self._send(peer, [self._language.filler] * count)
        until_s = time.monotonic() + _DRAIN_S
        while any(peer.out for peer in self._peers.values() if peer.manner == DEAF) and time.monotonic() < until_s:
            self._turn()
        return {}

    def offer(self, begin_s: float, seconds: float, rate: float) -> dict[str, object]:
        """Send `rate` frames per second from `begin_s` (monotonic); then wait for answers of honest connections."""
        self._found, self._begin_s = _Found(), begin_s
        time.sleep(max(0.0, begin_s - time.monotonic()))
        offered, trickle_s, used_s = 0, begin_s, time.process_time()
        while (now_s := time.monotonic()) < begin_s + seconds:
            due = min(int((now_s - begin_s) * rate) - offered, _MOST_AT_ONCE)
            for _ in range(due):
                self._offer()
            offered += due
            if now_s >= trickle_s:
                self._trickle()
                trickle_s = now_s + _TRICKLE_S
            self._turn()
        cpu = (time.process_time() - used_s) / seconds
        until_s = time.monotonic() + _DRAIN_S
        while self._awaited() and time.monotonic() < until_s:
            self._turn()
        self._found.lost += self._awaited()
        results = self._found
        return {
            **vars(results),
            "offered": offered,
            "latency_ms": [*results.latency_ms.items()],
            "per_second": [results.per_second[second] for second in range(int(seconds))],
            "cpu": cpu,
        }

    def saturate(self, seconds: float, in_flight: int) -> dict[str, object]:
        """Frames per second of one further connection, which always has `in_flight` frames in flight."""
        self._found = _Found()
        peer = self._open(HONEST, 0)
        self._ready.clear()
        self._begin_s = time.monotonic() + _WARM_UP_S
        used_s = time.process_time()
        while time.monotonic() < self._begin_s + seconds:
            while peer.speech.greeted and len(peer.waiting) < in_flight and not peer.out:
                self._ask(peer)
            self._turn()
        cpu = (time.process_time() - used_s) / (seconds + _WARM_UP_S)
        self._close(peer)
        answered = sum(count for second, count in self._found.per_second.items() if second >= 0)
        return {"fps": answered / seconds, "cpu": cpu, "wrong": self._found.wrong}

    def close(self) -> None:
        for peer in [*self._peers.values()]:
            self._close(peer)
        self._epoll.close()

    # --- one connection ---------------------------------------------------------------------------------------

    def _open(self, manner: str, index: int) -> _Peer:
        end = socket.socket()
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if manner in (DEAF, TRICKLING):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER_BYTES)
        end.connect_ex(self._language.address)
        peer = self._peers[end.fileno()] = _Peer(manner, index, end, self._language.speech())
        peer.events = select.EPOLLRDHUP | (0 if peer.speech.greeted and manner != HONEST else select.EPOLLIN)
        self._epoll.register(end, peer.events)
        self._send(peer, [self._begun(peer)])
        return peer

    def _begun(self, peer: _Peer) -> bytes:
        beginnings = self._language.beginnings
        return beginnings[peer.kind % len(beginnings)] if peer.manner == HALF else self._language.hello

    def _close(self, peer: _Peer) -> None:
        self._epoll.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        peer.socket.close()
        peer.out.clear()

    def _cut_off(self, peer: _Peer) -> None:
        """Handle a connection that the daemon has closed."""
        self._found.cut_off[peer.manner] += 1
        if peer.manner == HONEST:
            self._found.lost += len(peer.waiting)
        self._close(peer)
        self._again.append((time.monotonic() + _AGAIN_S, peer.manner, peer.kind))

    def _send(self, peer: _Peer, buffers: Sequence[bytes]) -> None:
        peer.out.extend(memoryview(buffer) for buffer in buffers if buffer)
        self._send_more(peer)

    def _send_more(self, peer: _Peer) -> None:
        while peer.out:
            try:
                sent = peer.socket.sendmsg([*peer.out][:16])
            except BlockingIOError:
                break
            except OSError:  # its end is told by epoll, too
                break
            while peer.out and sent >= len(peer.out[0]):
                sent -= len(peer.out.popleft())
            if sent:
                peer.out[0] = peer.out[0][sent:]
        self._watch(peer, peer.events & ~select.EPOLLOUT | (select.EPOLLOUT if peer.out else 0))
        if not peer.out and (self._pipelines(peer) or not peer.waiting):
            self._is_ready(peer)

    def _is_ready(self, peer: _Peer) -> None:
        if peer.speech.greeted and peer.manner != HALF:
            self._ready.append(peer)

    def _watch(self, peer: _Peer, events: int) -> None:
        if events != peer.events:
            peer.events = events
            self._epoll.modify(peer.socket, events)

    def _pipelines(self, peer: _Peer) -> bool:
        return self._language.pipelines or peer.manner != HONEST

    # --- frames and answers -----------------------------------------------------------------------------------

    def _offer(self) -> None:
        while self._ready:
            peer = self._ready.popleft()
            if peer.socket.fileno() >= 0 and not peer.out:
                self._ask(peer)
                return
        self._found.held_back += 1

    def _ask(self, peer: _Peer) -> None:
        self._number += 1
        peer.waiting[self._number] = time.monotonic()
        self._found.sent += 1
        self._send(peer, self._language.request(self._number, peer.kind % _KINDS))

    def _turn(self) -> None:
        for fd, events in self._epoll.poll(_TURN_S):
            peer = self._peers.get(fd)
            if peer is None:
                continue
            if events & select.EPOLLOUT:
                self._send_more(peer)
            if events & select.EPOLLIN:
                self._read(peer)
            elif events & _CLOSING:
                self._cut_off(peer)
        while self._again and self._again[0][0] <= time.monotonic():
            _, manner, index = self._again.pop(0)
            self._open(manner, index)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._cut_off(peer)
            return
        greeted = peer.speech.greeted
        for number, code, tensors in peer.speech.take(data):
            self._take(peer, number, code, tensors)
        if peer.speech.greeted and not greeted:
            self._greeted(peer)

    def _greeted(self, peer: _Peer) -> None:
        """Handle the end of the handshake, after which only honest connections read."""
        if peer.manner != HONEST:
            self._watch(peer, peer.events & ~select.EPOLLIN)
        if peer.manner == HALF and self._begun(peer) == self._language.hello:
            self._send(peer, [self._language.half])
        elif not peer.out:
            self._is_ready(peer)

    def _take(self, peer: _Peer, number: int | None, code: str, tensors: bytes) -> None:
        results, now_s = self._found, time.monotonic()
        number = next(iter(peer.waiting), -1) if number is None else number
        sent_s = peer.waiting.pop(number, None)
        if sent_s is None:
            results.doubled += 1
            return
        results.codes[code] += 1
        if not code:
            results.latency_ms[round(1e3 * (now_s - sent_s), 1)] += 1
            results.per_second[int((now_s - self._begin_s) // 1)] += 1
            results.wrong += not _equal(tensors, self.expected[peer.kind % _KINDS])
        if not self._pipelines(peer):
            self._ready.append(peer)

    def _trickle(self) -> None:
        for peer in self._peers.values():
            if peer.manner == TRICKLING:
                try:
                    peer.socket.recv(1)
                except OSError:  # nothing has come, or it has ended, which epoll tells
                    continue

    def _awaited(self) -> int:
        return sum(len(peer.waiting) for peer in self._peers.values() if peer.manner == HONEST)


def burn(seconds: float, cores: float) -> dict[str, object]:
    """Use `cores` of a core for `seconds`, as evenly as busy clients do."""
    until_s, used_s, begin_s = time.monotonic() + seconds, time.process_time(), time.monotonic()
    while (now_s := time.monotonic()) < until_s:
        if time.process_time() - used_s < cores * (now_s - begin_s):
            sum(range(2000))
        else:
            time.sleep(_TURN_S / 4)
    return {"cpu": (time.process_time() - used_s) / seconds}


def _equal(tensors: bytes, expected: bytes) -> bool:
    """Whether an answer is as expected. Over HTTP a header precedes it; other cuts may change the last bits."""
    if tensors.endswith(expected):
        return True
    received = np.frombuffer(tensors[-len(expected) :], np.float32) if len(tensors) >= len(expected) else np.empty(0)
    wanted = np.frombuffer(expected, np.float32)
    return received.shape == wanted.shape and np.allclose(received, wanted, _RTOL, _ATOL)


def crowd_of(endpoint: str, port: int | None) -> Crowd:
    with Client(endpoint) as client:
        model = client.metadata()["model"]
        arrays = random_frames(model_inputs(model), _KINDS, seed=0)
        answers = [client.infer(frame) for frame in arrays]
        expected = [b"".join(array.tobytes() for array in answer.outputs.values()) for answer in answers]
    frames = [[array.tobytes() for array in frame.values()] for frame in arrays]
    language = Zmtp(endpoint, model, frames) if port is None else Http(port, model, frames)
    return Crowd(language, expected)


def child(endpoint: str, port: int | None) -> Child:
    crowd = crowd_of(endpoint, port)

    def answer(**order: Fields) -> Fields:
        ((name, fields),) = order.items()
        return burn(**fields) if name == "burn" else getattr(crowd, name)(**fields)

    return obey(answer)
