"""A connection over HTTP, by itself: who does not read is not waited for, who sends much is answered in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.client import AsyncClient
from shisha_rt.daemon.front.http_messages import Listener, ServeHttp
from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.front import HttpFront, http_routes
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.server import HttpConnections, serve_connections
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.signature import Signature
from tests.client.test_client import Frozen
from tests.daemon.test_http_address import certificate_in
from tests.protocol.gateway import Gateway
from tests.waiting import PATIENCE_S

_ANSWER = bytes(16 << 20)
HOST = b"Host: localhost\r\n"


async def _large(exchange: Exchange) -> None:
    await exchange.answer(200, [], [_ANSWER])


async def _echo(exchange: Exchange) -> None:
    """What was asked, and the body: of an even size by `read`, of an odd one to where it is wanted."""
    length = int(exchange.headers_by_name.get(b"content-length", b"0"))
    room = bytearray(length)
    if length % 2:
        assert await exchange.fill(memoryview(room)) == length
    else:
        room.clear()
        while piece := await exchange.read():
            room += piece
    about = {"method": exchange.method, "path": exchange.path, "size": len(room), "sum": sum(room)}
    headers = {name.decode(): value.decode() for name, value in exchange.headers}
    await exchange.answer(200, [], [json.dumps(about | {"headers": headers}).encode()])


def talk(
    answer: Callable[[Exchange], Awaitable[None]],
    caller: Callable[[asyncio.StreamReader, asyncio.StreamWriter, HttpConnections], Awaitable[None]],
    unread_s: float = PATIENCE_S,
    count: Callable[[int], object] = lambda _: None,
) -> None:
    async def run() -> None:
        connections = HttpConnections(answer, 8, count, unread_s=unread_s)
        server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1 << 16)
        try:
            async with asyncio.timeout(60):
                await caller(reader, writer, connections)
        finally:
            writer.close()
            server.close()
            for connection in list(connections.open):
                connection.transport.abort()
            await asyncio.sleep(0)

    asyncio.run(run())


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = dict(line.split(": ", 1) for line in lines if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize("reads", [True, False])
def test_who_reads_nothing_of_an_answer_is_cut_off_and_who_reads_slowly_has_all(*, reads: bool) -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        if reads:
            for _ in range(16):
                assert len(await reader.readexactly(1 << 20)) == 1 << 20
                await asyncio.sleep(0.04)
            assert connections.open
        else:
            while connections.open:
                await asyncio.sleep(0.02)

    talk(_large, caller, unread_s=0.4)


def test_no_connection_is_idle_while_a_request_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that comes in one piece with the rest of one that was answered before its end."""

    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/late":
            for _ in range(20):  # an idle connection would be closed meanwhile
                await asyncio.sleep(0)
        await exchange.answer(200, [], [b"{}"])

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: HttpConnections) -> None:
        writer.write(b"POST /early HTTP/1.1\r\nContent-Length: 4\r\n%b\r\nab" % HOST)
        assert (await answer_of(reader))[0] == 200
        writer.write(b"cdGET /late HTTP/1.1\r\n%b\r\n" % HOST)
        assert (await answer_of(reader))[0] == 200

    monkeypatch.setattr("shisha_rt.http.connection.KEEP_ALIVE_S", 0)
    talk(answer, caller)


def test_who_reads_slowly_has_all_of_the_last_answer_too() -> None:
    """The process ends when what it serves has ended, and what it has not sent by then is lost."""
    endings: list[Callable[[], object]] = []

    async def serve(listening: socket.socket) -> None:
        ending = asyncio.Event()
        endings.append(partial(asyncio.get_running_loop().call_soon_threadsafe, ending.set))
        await serve_connections(listening, _large, ending, last_answers_s=PATIENCE_S)

    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as end:
        serving = threading.Thread(target=lambda: asyncio.run(serve(listening)))
        serving.start()
        end.settimeout(PATIENCE_S)
        end.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        with end.makefile("rb") as answer:
            while answer.readline() != b"\r\n":
                pass
            endings[0]()
            serving.join(0.2)
            assert len(answer.read()) == len(_ANSWER)
        serving.join()


def test_who_begins_no_handshake_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(*certificate_in(tmp_path))
    monkeypatch.setattr("shisha_rt.http.server._HANDSHAKE_S", 0.2)

    async def main() -> None:
        ending = asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(serve_connections(listening, _large, ending, secure))
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()
            ending.set()
            await serving

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 1000, 1001, 100_000, 100_001, 3_000_001])
def test_requests_that_come_at_once_are_answered_in_order(size: int) -> None:
    body = bytes(number % 251 for number in range(size))

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        for number in range(3):
            writer.write(b"POST /%d HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (number, HOST, size) + body)
        for number in range(3):
            status, _, about = await answer_of(reader)
            assert (status, about["path"]) == (200, f"/{number}")
            assert (about["size"], about["sum"]) == (size, sum(body))

    talk(_echo, caller)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_who_hangs_up_is_noticed_though_more_requests_have_come(ahead: int) -> None:
    begun, lost = asyncio.Event(), asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        exchange.watch(lost.set)
        begun.set()
        await asyncio.Event().wait()

    async def caller(_: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        request = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
        writer.write(request)
        await begun.wait()
        (connection,) = connections.open
        writer.write(request * ahead)
        while len(connection._next) < ahead:
            await asyncio.sleep(0.01)
        writer.close()
        await lost.wait()

    talk(waits, caller)


@pytest.mark.parametrize("size", [0, 20_000])
def test_of_requests_that_wait_only_a_few_are_read(size: int) -> None:
    count = 200
    answering = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        exchange.watch(None)  # as inference does: it reads on
        await answering.wait()
        await _echo(exchange)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        for number in range(count):
            writer.write(b"POST /%d HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (number, HOST, size) + bytes(size))
        while not any(connection._is_far_ahead for connection in connections.open):
            await asyncio.sleep(0.01)
        (connection,) = connections.open
        for _ in range(100):
            await asyncio.sleep(0)
        assert connection._patience is None
        assert len(connection._next) < count
        assert sum(len(exchange.body) for exchange in connection._next) < 1 << 19
        answering.set()
        for number in range(count):
            status, _, about = await answer_of(reader)
            assert (status, about["path"], about["size"]) == (200, f"/{number}", size)

    talk(waits, caller)


@pytest.mark.parametrize("chunked", [True, False])
def test_another_protocol_is_not_gone_over_to(*, chunked: bool) -> None:
    """As Java's client asks by itself: the request is served as it is, with its body, and so is the next."""
    body = bytes(200_001)
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n"
    size = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(body)
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        for number in range(2):
            writer.write(b"POST /%d HTTP/1.1\r\n%b%b%b\r\n" % (number, HOST, upgrade, size) + sent)
            status, _, about = await answer_of(reader)
            assert (status, about["path"], about["size"]) == (200, f"/{number}", len(body))
            assert not {"upgrade", "connection", "http2-settings"} & about["headers"].keys()
        writer.write(b"GET /ws HTTP/1.1\r\n%bConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n" % HOST)
        status, _, about = await answer_of(reader)
        assert (status, about["path"], about["headers"]["connection"]) == (200, "/ws", "keep-alive")

    talk(_echo, caller)


def test_a_trailer_changes_no_header() -> None:
    """Access is decided by headers, before the body: none may come after that."""

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        for path in (b"/first", b"/second"):
            writer.write(b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" % (path, HOST))
            writer.write(b"0\r\nHost: elsewhere\r\nAuthorization: Bearer t0ken\r\n\r\n")
            status, _, about = await answer_of(reader)
            assert (status, about["path"], about["size"]) == (200, path.decode(), 3)
            assert about["headers"] == {"host": "localhost", "transfer-encoding": "chunked"}

    talk(_echo, caller)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("line", [b"a:b\r\n", b"a"], ids=["lines", "line"])
def test_a_trailer_without_an_end_is_cut_off(line: bytes, *, early: bool) -> None:
    """Also after the answer, which is often there before the body's end."""

    async def refuses(exchange: Exchange) -> None:
        await exchange.answer(401, [], [b"{}"])

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        writer.write(b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n" % HOST)
        if early:
            await answer_of(reader)
        sent_bytes = 0
        with contextlib.suppress(ConnectionError):
            while connections.open and sent_bytes < 1 << 20:
                writer.write(line * 100)
                await writer.drain()
                sent_bytes += len(line) * 100
                await asyncio.sleep(0)
        assert sent_bytes < 1 << 20

    talk(refuses if early else _echo, caller)


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_what_is_no_request_is_refused_behind_the_answers_before_it(garbage: bytes) -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        writer.write(b"GET /first HTTP/1.1\r\n" + HOST + b"\r\n" + garbage)
        assert (await answer_of(reader))[2]["path"] == "/first"
        status, headers, about = await answer_of(reader)
        assert (status, headers["connection"], list(about)) == (400, "close", ["error", "kind"])
        assert await reader.read() == b""

    talk(_echo, caller)


def test_a_fault_is_an_answer_and_a_full_house_is_said() -> None:
    async def fails(_: Exchange) -> None:
        raise RuntimeError("a fault on purpose")

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        status, _, error = await answer_of(reader)
        assert (status, error["kind"]) == (500, Error.FAILED)
        connections.most = 0
        other, sends = await asyncio.open_connection(*writer.get_extra_info("peername"))
        sends.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        status, _, error = await answer_of(other)
        assert (status, error["kind"]) == (503, Error.TOO_MANY_CALLERS)
        sends.close()

    talk(fails, caller)


MOST_OF_A_HEAD = 64 << 10


def head_of(size_bytes: int) -> bytes:
    """A request without a body whose head has so many bytes, in several headers."""
    begun = b"GET /sized HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: %b\r\n" % (n, b"x" * 1000) for n in range(60))
    return begun + b"X: " + b"x" * (size_bytes - len(begun) - len(b"X: \r\n\r\n")) + b"\r\n\r\n"


@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 7000 + b"\r\n\r\n"])
@pytest.mark.parametrize(("size_bytes", "status"), [(MOST_OF_A_HEAD, 200), (MOST_OF_A_HEAD + 1, 431)])
def test_a_head_has_the_limit_and_not_a_byte_more(before: bytes, size_bytes: int, status: int) -> None:
    """Whatever of it comes with the request before it."""

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: HttpConnections) -> None:
        writer.write(before + head_of(size_bytes))
        if before:
            assert (await answer_of(reader))[0] == 200
        assert (await answer_of(reader))[0] == status

    talk(_echo, caller)


REFUSED = [
    (b"\x00\x01\r\n\r\n", 400),
    (b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + HOST * 2 + b"\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    (b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /?a#b HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    (b"GET /\r\n\r\n", 505),
    (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc", 400),
    (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + bytes(120_000).replace(b"\0", b"x"), 431),
]


@pytest.mark.parametrize(("sent", "status"), REFUSED)
def test_what_the_connection_refuses_is_counted_too_and_once(sent: bytes, status: int) -> None:
    counted: list[int] = []

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        writer.write(sent)
        code, headers, _ = await answer_of(reader)
        assert (code, headers["connection"]) == (status, "close")
        assert await reader.read() == b""
        writer.close()
        while connections.open or connections.tasks:
            await asyncio.sleep(0.01)

    talk(_echo, caller, count=counted.append)
    assert counted == [status]


@pytest.mark.parametrize("most", [0, 8])
@pytest.mark.parametrize("head", [b"HTTP/1.1\r\nConnection: close", b"HTTP/1.0"], ids=["close", "old"])
def test_an_early_answer_is_seen_though_the_body_still_comes(head: bytes, most: int) -> None:
    """Closed with bytes unread, the connection would be reset, and the answer lost with it."""
    body = bytes(4 << 20)
    counted: list[int] = []

    async def refuses(exchange: Exchange) -> None:
        await exchange.answer(404, [], [b"{}"])

    def sends(where: tuple[str, int]) -> int:
        with socket.create_connection(where, timeout=PATIENCE_S) as end, end.makefile("rb") as answer:
            end.sendall(b"POST / " + head + b"\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return int(answer.read().split()[1])

    async def caller(_: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        connections.most = most
        assert await asyncio.to_thread(sends, writer.get_extra_info("peername")) == (404 if most else 503)

    talk(refuses, caller, count=counted.append)
    assert counted == [404 if most else 503]


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_the_rest_of_a_body_is_dropped_behind_its_answer_and_the_next_request_is_served(size: int) -> None:
    early = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/early":
            await exchange.answer(404, [], [b"{}"])
            early.set()
        else:
            await _echo(exchange)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: HttpConnections) -> None:
        for _turn in range(2):
            writer.write(b"POST /early HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, size))
            assert (await answer_of(reader))[0] == 404
            await early.wait()
            writer.write(bytes(size) + b"POST /next HTTP/1.1\r\n%bContent-Length: 3\r\n\r\nabc" % HOST)
            status, _headers, about = await answer_of(reader)
            assert (status, about["path"], about["size"]) == (200, "/next", 3)

    talk(answer, caller)


@pytest.mark.parametrize("reads", [True, False])
def test_a_body_that_was_not_asked_for_need_not_come(*, reads: bool) -> None:
    """After a final answer in place of `100 Continue` nobody knows whether a body follows: the connection ends."""

    async def refuses(exchange: Exchange) -> None:
        await exchange.answer(404, [], [b"{}"])

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        writer.write(b"POST / HTTP/1.1\r\n%bExpect: 100-continue\r\nContent-Length: 4\r\n\r\n" % HOST)
        if reads:
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"abcd")
        status, headers, _ = await answer_of(reader)
        assert (status, headers.get("connection")) == ((200, None) if reads else (404, "close"))

    talk(_echo if reads else refuses, caller)


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (b"/a", "localhost"),
        (b"http://other/a", "other"),
        (b"http://[::1]:80/a?b", "[::1]:80"),
        (b"//other/a", "localhost"),
    ],
)
def test_an_absolute_target_says_the_host(target: bytes, host: str) -> None:
    hosts: list[bytes] = []

    async def notes(exchange: Exchange) -> None:
        hosts.append(exchange.headers_by_name[b"host"])
        await exchange.answer(200, [], [b"{}"])

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: HttpConnections) -> None:
        writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (target, HOST))
        assert (await answer_of(reader))[0] == 200

    talk(notes, caller)
    assert hosts == [host.encode()]


def test_blanks_around_a_value_are_none_of_it() -> None:
    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: HttpConnections) -> None:
        headers = b"Host: \t localhost:1 \t\r\nExpect: 100-continue \r\nContent-Length: 3\t\r\n"
        writer.write(b"POST / HTTP/1.1\r\n" + headers + b"\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"abc")
        echo = (await answer_of(reader))[2]
        assert echo["headers"] == {"host": "localhost:1", "expect": "100-continue", "content-length": "3"}

    talk(_echo, caller)


def test_who_asked_in_http_1_0_to_upgrade_is_answered_in_it() -> None:
    async def streams(exchange: Exchange) -> None:
        await exchange.start(200, [])
        await exchange.send(b"piece")
        await exchange.finish()

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        writer.write(b"GET / HTTP/1.0\r\n%bConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % HOST)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert body == b"piece"

    talk(streams, caller)


def test_a_status_without_a_body_has_no_length() -> None:
    async def unchanged(exchange: Exchange) -> None:
        await exchange.answer(304, [], [b""])

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: HttpConnections) -> None:
        for _turn in range(2):
            writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 304")
            assert b"content-length" not in head

    talk(unchanged, caller)


def test_who_comes_as_the_end_has_begun_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.http.connection._PATIENCE_S", 2 * PATIENCE_S)

    async def caller(_: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        connections.end()
        late, sends = await asyncio.open_connection(*writer.get_extra_info("peername"))
        assert await late.read() == b""
        sends.close()

    talk(_echo, caller)


def test_a_frame_without_a_deadline_is_not_awaited_for_good_of_a_daemon_that_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = Frozen()
    state: list[AppState] = []

    async def front(exchange: Exchange) -> None:
        if not state:
            state.append(AppState(ServeHttp(gateway.endpoint, (listener,))))
        await HttpFront(state[0], listener, http_routes(state[0], Inferences(state[0])))(exchange)

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        asked = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()
        request = b"POST /v2/models/double/infer HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, len(asked)) + asked
        writer.write(request)
        status, _, error = await answer_of(reader)
        assert (status, error["kind"]) == (503, Error.CONNECTION_LOST)
        frozen.thaws.set()
        writer.write(request)
        status, _, answered = await answer_of(reader)
        assert (status, answered["outputs"][0]["data"]) == (200, [2, 4, 6])
        await state[0].close()

    listener = Listener(0, unix=False, beyond=False)
    monkeypatch.setattr("shisha_rt.http.app_state._SILENCE_S", 0.2)
    with Gateway(frozen) as gateway:
        talk(front, caller)


@pytest.mark.parametrize("asked", [b"GET /v2", b"POST /v2/models/m/infer"], ids=["framework", "inference"])
@pytest.mark.parametrize("stays", [True, False])
def test_a_fault_is_counted_and_who_goes_is_counted_as_gone(
    monkeypatch: pytest.MonkeyPatch, asked: bytes, *, stays: bool
) -> None:
    """A fault of ours is an answer 500; a caller that hangs up before its request has come is none."""
    state: list[AppState] = []

    async def front(exchange: Exchange) -> None:
        state.append(AppState(ServeHttp("tcp://127.0.0.1:1", (listener,))))
        await HttpFront(state[0], listener, http_routes(state[0], Inferences(state[0])))(exchange)

    async def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a fault on purpose")

    async def signature(*_: object, **__: object) -> Signature:
        return Signature("m", (Tensor("x", (1, 2), "FP32"),), (Tensor("y", (1, 2), "FP32"),))

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connections: HttpConnections) -> None:
        if stays:
            writer.write(asked + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            status, _, error = await answer_of(reader)
            assert (status, error["kind"]) == (500, Error.FAILED)
        else:
            path = b"POST /v2/repository/index" if asked.startswith(b"GET") else asked
            writer.write(path + b" HTTP/1.1\r\nContent-Length: 9\r\n" + HOST + b"\r\n")
            while not connections.tasks:
                await asyncio.sleep(0.01)
            writer.close()
        while connections.tasks:
            await asyncio.sleep(0.01)
        counted = state[0].counted()
        assert counted is not None
        assert counted.by_status == {500 if stays else 499: 1}
        await state[0].close()

    listener = Listener(0, unix=False, beyond=False)
    monkeypatch.setattr(AsyncClient, "call", fails)
    monkeypatch.setattr(AsyncClient, "signature", fails if stays else signature)
    talk(front, caller, count=lambda status: state[0].count(status))


def test_who_goes_amid_a_request_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    failed: list[BaseException] = []

    async def reads(exchange: Exchange) -> None:
        try:
            await exchange.read()
        except ConnectionError as error:
            failed.append(error)
            raise

    async def caller(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: HttpConnections) -> None:
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n" + HOST + b"\r\n")
        await writer.drain()
        writer.close()
        while not failed:
            await asyncio.sleep(0.01)

    talk(reads, caller)
    assert caplog.records == []


def test_who_goes_just_as_he_is_refused_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the answer and the end of what is sent; as rarely as one in some thousand malformed requests."""

    async def answers(exchange: Exchange) -> None:
        await asyncio.sleep(0)
        await exchange.answer(200, [], [b"{}"])

    async def caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, given: HttpConnections) -> None:
        while not given.open:
            await asyncio.sleep(0)
        for connection in given.open:
            monkeypatch.setattr(type(connection.transport), "write_eof", gone)
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n\x00\x01\r\n\r\n")
        assert (await answer_of(reader))[0] == 200
        assert (await answer_of(reader))[0] == 400

    def gone(_: object) -> None:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    talk(answers, caller)
    assert caplog.records == []
