"""Where HTTP may be spoken, and what that takes."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shisha_rt.daemon.front import addresses as front_addresses
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.http_address import HeldPort, HttpListener, http_address
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import BadInput, Error
from tests.wording import raised


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("127.0.0.1:8000", False),
        ("localhost:0", False),
        ("[::1]:8000", False),
        ("127.9.9.9:1", False),
        ("unix:/run/shisha.sock", False),
        ("0.0.0.0:8000", True),
        ("[::]:8000", True),
        ("10.0.0.7:8000", True),
        ("gpu1.example.org:443", True),
    ],
)
def test_an_address_says_whether_other_hosts_reach_it(text: str, beyond: bool) -> None:
    address = http_address(text)
    assert address.beyond is beyond
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "80000",
        ":8000",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "h:65536",
        "h:-1",
        "h:" + "1" * 5000,
        "h:٣",
        "::1:8000",
        "[::1:8000",
        "[127.0.0.1]:8000",
        "127.0.0.1 :8000",
        "http://127.0.0.1:8000",
        "unix:",
        "unix:" + "x" * 200,
    ],
)
def test_what_is_no_address_is_refused_in_a_line(text: str) -> None:
    with raised(BadInput, Error.BAD_ENDPOINT, match="expected") as refused:
        http_address(text)
    assert "\n" not in str(refused.value)


def test_a_port_by_itself_is_one_of_loopback() -> None:
    assert str(http_address("7102")) == str(http_address("7102", "metrics")) == "127.0.0.1:7102"
    assert not http_address("0", "metrics").beyond


@pytest.mark.parametrize(
    "text", ["", ":9464", "9464x", "70000", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:", "unix:/run/a"]
)
def test_what_is_no_address_of_metrics_is_refused_in_a_line(text: str) -> None:
    with raised(BadInput, Error.BAD_ENDPOINT, match="expected HOST:PORT, as 127") as refused:
        http_address(text, "metrics")
    assert str(refused.value).startswith(f"metrics {text!r}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value"), [("http", ("0.0.0.0:0",)), ("grpc", ("0.0.0.0:0",)), ("metrics", "0.0.0.0:0")]
)
def test_beyond_loopback_it_takes_a_certificate_and_a_list_of_who_may_come(
    tmp_path: Path, option: str, value: Any
) -> None:
    certificate, key = certificate_in(tmp_path)
    whole = Settings(
        "m.onnx",
        endpoint=f"ipc://{tmp_path}/socket",
        **{option: value},
        access="access.toml",
        http_certificate=str(certificate),
        http_key=str(key),
    )
    addresses = addresses_of(whole)
    assert [address.beyond for address in (*addresses.http, *addresses.grpc, addresses.metrics)].count(True) == 1
    for missing in (
        replace(whole, access=None, http_certificate=None, http_key=None),
        replace(whole, http_certificate=None, http_key=None),
        replace(whole, access=None),
    ):
        with raised(BadInput, Error.EXPOSED_ADDRESS, match=rf"{option} 0.0.0.0:0: .* --http-certificate"):
            addresses_of(missing)


def test_a_certificate_is_looked_at_before_anything_is_served(tmp_path: Path) -> None:
    certificate, key = certificate_in(tmp_path)

    def refusal(certificate: Path | None, key: Path | None) -> str:
        settings = Settings(
            "m.onnx",
            http_certificate=None if certificate is None else str(certificate),
            http_key=None if key is None else str(key),
        )
        with pytest.raises(BadInput) as refused:
            addresses_of(settings)
        return str(refused.value)

    assert "one without the" in refusal(certificate, None)
    assert "no such file" in refusal(certificate, tmp_path / "none.pem")
    other, _ = certificate_in(tmp_path / "other")
    assert "expected a certificate and its key" in refusal(other, key)
    (tmp_path / "text.pem").write_text("nothing")
    assert "expected a certificate and its key" in refusal(tmp_path / "text.pem", key)
    key.chmod(0o640)
    assert f"chmod 600 {key}" in refusal(certificate, key)


def test_a_listener_is_there_from_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    listeners = [HttpListener(http_address(text)) for text in ("127.0.0.1:0", f"unix:{path}")]
    port = listeners[0].socket.getsockname()[1]
    assert [listener.url for listener in listeners] == [f"http://127.0.0.1:{port}", f"unix:{path}"]
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.create_connection(("127.0.0.1", port)):
        pass
    for text in (f"127.0.0.1:{port}", f"unix:{path}"):
        with raised(BadInput, Error.ADDRESS_TAKEN, match="serves there"):
            HttpListener(http_address(text))
    for listener in listeners:
        listener.close()
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_host_cannot_be_bound() -> None:
    with raised(BadInput, Error.ADDRESS_TAKEN, match="expected an address of this host"):
        HttpListener(http_address("192.0.2.1:0"))
    with raised(BadInput, Error.BAD_ENDPOINT, match="no name of"):
        HttpListener(http_address("a..b:0"))


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that vouches for itself, and its key."""
    folder.mkdir(exist_ok=True)
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        + ["-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return certificate, key


def test_a_port_held_for_grpc_is_nobody_elses() -> None:
    held = HeldPort(http_address("127.0.0.1:0", "grpc"))
    try:
        port = int(held.passed.target.rpartition(":")[2])
        with pytest.raises(BadInput, match=f"127.0.0.1:{port}: another program serves there"):
            HeldPort(http_address(str(port), "grpc"))
        with pytest.raises(BadInput, match=f"127.0.0.1:{port}: another program serves there"):
            HttpListener(http_address(str(port)))
        with socket.socket() as served:  # as the library binds
            served.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            served.bind(("127.0.0.1", port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            served.listen()
            for _ in range(20):  # none of them goes to the one that holds the port
                socket.create_connection(("127.0.0.1", port)).close()
                served.accept()[0].close()
            with pytest.raises(BadInput, match="another program serves there"):
                HeldPort(http_address(str(port), "grpc"))
    finally:
        held.close()
    HeldPort(http_address(str(port), "grpc")).close()


@pytest.mark.parametrize("text", ["unix:/run/shisha.sock", "localhost", ""])
def test_grpc_is_spoken_at_a_host_and_a_port(text: str) -> None:
    with pytest.raises(BadInput, match=r"expected HOST:PORT, as 127\.0\.0\.1:8001"):
        http_address(text, "grpc")


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:4318", "ftp://a", "http://", "http://:4318", "http://a:0", "http://a:65536", "http://a b:4318"),
        *("http://a:4318 ", "http://a:4318/a b", "http://a\n:4318", "http://a;b:4318", "http://a:4318?b", "http://a#b"),
    ],
)
def test_an_otlp_receiver_has_a_host_and_perhaps_a_port(url: str) -> None:
    with raised(BadInput, Error.BAD_ENDPOINT):
        addresses_of(Settings("m.onnx", otlp=url))


@pytest.mark.parametrize("url", ["http://a", "https://[::1]:4318", "http://name:word@a.b:4318/path/"])
def test_an_otlp_receiver_may_have_a_path_and_a_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_addresses, "is_installed", lambda _: True)
    assert addresses_of(Settings("m.onnx", otlp=url)).settings.otlp == url


def test_grpc_takes_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_addresses, "is_installed", lambda _: False)
    with pytest.raises(BadInput, match=r"grpcio is missing, expected the extra 'grpc': pip install .*\[grpc\]"):
        addresses_of(Settings("m.onnx", grpc=("0",)))
