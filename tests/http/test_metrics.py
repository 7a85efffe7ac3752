"""The metrics page where other hosts can reach it: TLS, tokens, and callers who mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shisha_rt.http.exchange import Exchange
from shisha_rt.http.server import HttpConnections, serve_connections
from tests.daemon.test_http_address import certificate_in
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import frame_of, write_identity_model
from tests.waiting import PATIENCE_S, until

TOKEN: Final = "a token for looking"
CLIENT: Final = f'[[user]]\nname = "prometheus"\ntoken_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"\n'
OTHER: Final = f'[[user]]\nname = "other"\ntoken_sha256 = "{hashlib.sha256(b"other").hexdigest()}"\n'
HALF_OPEN: Final = 40
SOON_S: Final = 30.0


@dataclass(frozen=True)
class Exposed:
    """A daemon whose page anybody can reach, and what its user has."""

    daemon: DaemonProcess
    certificate: Path
    access: Path

    @property
    def port(self) -> int:
        return int(self.daemon.metrics.removesuffix("/metrics").rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def ask(self, token: str | None, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
        """The status and text of an answer over TLS, by somebody who checks the certificate."""
        trusts = ssl.create_default_context(cafile=self.certificate)
        caller = http.client.HTTPSConnection("localhost", self.port, context=trusts, timeout=PATIENCE_S)
        with contextlib.closing(caller):
            caller.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
            answer = caller.getresponse()
            return answer.status, answer.read().decode()

    def value(self, name: str, **labels: str) -> float | None:
        status, text = self.ask(TOKEN)
        assert status == 200, text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exposed]:
    folder = tmp_path_factory.mktemp("exposed")
    certificate, key = certificate_in(folder)
    access = folder / "access.toml"
    access.write_text(CLIENT)
    tls = ("--http-certificate", certificate, "--http-key", key, "--access", access)
    where = f"ipc://{folder}/socket"
    with DaemonProcess(folder, write_identity_model(folder), "--metrics", "0.0.0.0:0", *tls, endpoint=where) as daemon:
        yield Exposed(daemon, certificate, access)


def test_whoever_has_a_token_scrapes_over_tls(exposed: Exposed) -> None:
    assert exposed.daemon.metrics == f"https://0.0.0.0:{exposed.port}/metrics"
    assert exposed.daemon.http == []
    exposed.daemon.control.infer(frame_of(1))
    assert exposed.value("shisha_frames_total", outcome="OK") == 1
    assert exposed.ask(TOKEN, method="HEAD") == (200, "")


def test_it_answers_in_the_form_that_is_asked_for(exposed: Exposed) -> None:
    trusts = ssl.create_default_context(cafile=exposed.certificate)
    caller = http.client.HTTPSConnection("localhost", exposed.port, context=trusts, timeout=PATIENCE_S)
    with contextlib.closing(caller):
        accept = "application/openmetrics-text; version=1.0.0"
        caller.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}", "Accept": accept})
        answer = caller.getresponse()
        assert answer.headers["Content-Type"].startswith(accept)
        assert answer.read().endswith(b"# EOF\n")


@pytest.mark.parametrize(("token", "reason"), [(None, "no_token"), ("wrong", "unknown_token")])
def test_without_the_token_nothing_is_told(exposed: Exposed, token: str | None, reason: str) -> None:
    status, text = exposed.ask(token)
    assert status == 401
    assert "shisha_" not in text
    until(lambda: exposed.value("shisha_access_refused_total", reason=f"http_{reason}"), "the refusal")


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/", "GET", 404), ("/v2", "GET", 404), ("/metrics", "POST", 405)]
)
def test_there_is_nothing_else_there(exposed: Exposed, path: str, method: str, status: int) -> None:
    assert exposed.ask(TOKEN, path, method)[0] == status


def test_even_the_open_part_of_the_page_is_not_there(exposed: Exposed) -> None:
    assert exposed.ask(None, "/")[0] == 404


def test_without_tls_there_is_no_answer(exposed: Exposed) -> None:
    with exposed.connect() as caller:
        caller.sendall(f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionResetError):
            assert not caller.recv(1 << 16).startswith(b"HTTP")
    assert exposed.ask(TOKEN)[0] == 200


def test_half_open_connections_delay_nobody(exposed: Exposed) -> None:
    """They say nothing, or the beginning of a handshake, or of a request."""
    trusts = ssl.create_default_context(cafile=exposed.certificate)
    with contextlib.ExitStack() as closing:
        for number in range(HALF_OPEN):
            slow = closing.enter_context(exposed.connect())
            if number % 3 == 1:
                slow.sendall(b"\x16\x03\x01\x02\x00\x01")
            elif number % 3 == 2:
                slow = closing.enter_context(trusts.wrap_socket(slow, server_hostname="localhost"))
                slow.sendall(b"GET /metrics HT")
        began_s = time.monotonic()
        assert exposed.ask(TOKEN)[0] == 200
        for number in range(20):
            exposed.daemon.control.infer(frame_of(number))
        assert time.monotonic() - began_s < SOON_S


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does next to nothing
def test_another_users_program_cannot_read_past_the_token(exposed: Exposed) -> None:
    """The daemon gives the text by a UNIX socket that is in no folder, so that no folder's rights keep others out."""
    if os.geteuid() != 0:
        pytest.skip("takes root, who may become somebody else")
    name = next(
        line.split()[-1]
        for line in Path("/proc/net/unix").read_text().splitlines()
        if line.split()[-1].startswith("@") and _inode(line) in _inodes(exposed.daemon.pid)
    )
    assert _read_inside(name, uid=os.geteuid()).startswith(b"text/plain")
    assert _read_inside(name, uid=65534) == b""


def test_a_token_is_revoked_while_it_serves(exposed: Exposed) -> None:
    exposed.access.write_text(OTHER)
    os.kill(exposed.daemon.pid, signal.SIGHUP)
    until(lambda: exposed.ask(TOKEN)[0] == 401, "the new list")
    assert exposed.ask("other")[0] == 200
    exposed.access.write_text(CLIENT)
    os.kill(exposed.daemon.pid, signal.SIGHUP)
    until(lambda: exposed.ask(TOKEN)[0] == 200, "the old list")


def test_it_comes_back_at_the_same_address_when_its_process_dies(exposed: Exposed) -> None:
    (page,) = exposed.daemon.running("shisha_rt.http.process")
    page.kill()
    assert exposed.ask(TOKEN)[0] == 200  # the address is the daemon's: the next process answers


@pytest.mark.parametrize("reads", [True, False])
def test_over_tls_too_who_reads_nothing_is_cut_off(tmp_path: Path, *, reads: bool) -> None:
    """Of one answer, larger than what the kernel takes."""
    certificate, key = certificate_in(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(200, [], [bytes(16 << 20)])

    async def run() -> None:
        connections = HttpConnections(answer, 8, scheme="https", unread_s=0.4)
        server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0, ssl=context)
        trusts = ssl.create_default_context(cafile=certificate)
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address, ssl=trusts, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        if reads:
            for _ in range(16):
                assert len(await reader.readexactly(1 << 20)) == 1 << 20
                await asyncio.sleep(0.04)
            (connection,) = connections.open
            assert connection.unsent_bytes == 0
        else:
            assert sum(connection.unsent_bytes for connection in connections.open) > 0
            while connections.open:
                await asyncio.sleep(0.02)
        writer.close()
        server.close()
        for connection in list(connections.open):
            connection.transport.abort()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_over_tls_who_reads_slowly_has_all_of_the_last_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself asyncio ends a connection half a minute after it is closed, however much of the answer is not read."""
    certificate, key = certificate_in(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(200, [], [bytes(16 << 20)])

    async def run(listening: socket.socket) -> None:
        ending = asyncio.Event()
        serving = asyncio.create_task(serve_connections(listening, answer, ending, context))
        trusts = ssl.create_default_context(cafile=certificate)
        address = listening.getsockname()
        reader, writer = await asyncio.open_connection(*address, ssl=trusts, server_hostname="localhost")
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        assert len(await reader.read(-1)) == 16 << 20
        writer.close()
        ending.set()
        await serving

    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(asyncio.wait_for(run(listening), PATIENCE_S))


def test_over_tls_who_does_not_end_a_closed_connection_is_cut_off(tmp_path: Path) -> None:
    certificate, key = certificate_in(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(200, [], [b"{}"])

    def connect(address: tuple[str, int]) -> ssl.SSLSocket:
        trusts = ssl.create_default_context(cafile=certificate)
        caller = trusts.wrap_socket(socket.create_connection(address), server_hostname="localhost")
        caller.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return caller

    async def run() -> None:
        connections = HttpConnections(answer, 8, scheme="https", unread_s=0.1)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(connections, "127.0.0.1", 0, ssl=context, ssl_shutdown_timeout=PATIENCE_S)
        caller = await asyncio.to_thread(connect, server.sockets[0].getsockname())
        (connection,) = connections.open
        await connection.lost
        caller.close()
        server.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S / 2))


def _inode(line: str) -> str:
    return line.split()[6]


def _inodes(pid: int) -> set[str]:
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    return inodes


def _read_inside(name: str, uid: int) -> bytes:
    """What a process of that user reads from the daemon's own socket."""
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX) as end:
                end.connect("\0" + name[1:])
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    end.sendall(b"\n")
                    os.write(theirs, end.recv(64))
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with open(mine, "rb") as answer:  # noqa: PTH123 (a descriptor)
        return answer.read()
