"""What a service manager is told, by a real daemon and where it listens badly."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shisha_rt.daemon.service_manager import ServiceManager
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.host_process import HostProcess
from tests.serving.identity_model import write_identity_model
from tests.waiting import PATIENCE_S


class Systemd:
    """Its side of the socket at `address`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def heard(self) -> dict[str, str]:
        """The next message."""
        lines = self._socket.recv(65536).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def heard_until(self, name: str) -> list[dict[str, str]]:
        """All messages up to the next one that has `name`."""
        messages = [self.heard()]
        while name not in messages[-1]:
            messages.append(self.heard())
        return messages

    def is_silent(self) -> bool:
        self._socket.setblocking(False)
        try:
            self._socket.recv(65536)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_S)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    """At an abstract address, as in a user's session."""
    manager = Systemd(f"@shisha-test-{os.getpid()}")
    yield manager
    manager.close()


def is_live(message: dict[str, str]) -> bool:
    return message.get("STATUS", "").startswith("epoch 1: fast0: 0-")


def test_a_daemon_says_how_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: Systemd) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    machine = machine_file(tmp_path, ["fast0"])
    with DaemonProcess(tmp_path, write_identity_model(tmp_path), "--machine", machine, is_program=True) as daemon:
        notices = systemd.heard_until("READY")
        assert notices[0]["STATUS"] == "reading identity.onnx"
        assert {"STATUS": "starting 1 workers"} in notices
        if not is_live(notices[-2]):  # the loop may look just before it finds itself ready
            assert is_live(systemd.heard_until("STATUS")[-1])
        systemd.heard_until("WATCHDOG")
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in daemon.worker_pids().values()]
        assert len(environments) == 1
        assert not any(b"NOTIFY_SOCKET" in environment or b"WATCHDOG" in environment for environment in environments)
        daemon.terminate()
        assert systemd.heard_until("STOPPING")[-1] == {"STOPPING": "1"}


def test_a_host_process_says_how_its_models_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: Systemd
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    (tmp_path / "models").mkdir()
    write_identity_model(tmp_path / "models")
    with HostProcess(tmp_path, tmp_path / "models", "--machine", machine_file(tmp_path, ["fast0"])):
        assert {"STATUS": "identity: reading identity.onnx"} in systemd.heard_until("READY")


def test_a_loop_that_looks_no_more_says_no_more(systemd: Systemd) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "8000000", "HOME": "/"})
    said = []
    for now_s in (0.0, 1.9, 2.0, 3.0, 4.1):
        manager.look(now_s, lambda: "fine")
        while not systemd.is_silent():
            said.append(now_s)
    assert said == [0.0, 0.0, 2.0, 4.1]  # at first its status, too
    manager.close()


def test_a_reload_is_framed(tmp_path: Path) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.address})
    with manager.reloading():
        began = systemd.heard()
        assert systemd.is_silent()
    assert began["RELOADING"] == "1"
    assert 0 < int(began["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert systemd.heard() == {"READY": "1"}
    manager.close()
    systemd.close()


def test_a_status_is_one_line(systemd: Systemd) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.address})
    manager.tell("two\nREADY=1\nlines")
    assert systemd.heard() == {"STATUS": "two READY=1 lines"}
    manager.close()


def test_one_that_does_not_read_is_told_later_and_the_end_of_a_reload_is_its_end(systemd: Systemd) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": systemd.address})
    count = 0
    while "RELOADING" not in manager._unsent:  # until its queue is full
        count += 1
        manager._notify(RELOADING="1")
    manager.tell("busy")
    manager.ready()
    for _ in range(count - 1):
        assert systemd.heard() == {"RELOADING": "1"}
    assert systemd.is_silent()
    manager.look(0.0, lambda: "busy")
    assert systemd.heard() == {"STATUS": "busy", "READY": "1"}
    manager.close()


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_what_is_no_address_is_nobody(address: str) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": address})
    manager.ready()
    manager.look(0.0, lambda: pytest.fail("nobody asks"))
    manager.close()


def test_one_that_has_gone_is_not_told(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    manager.ready()
    assert not manager._unsent
    manager.close()


def test_what_is_meant_for_another_process_is_no_watchdog_of_ours(systemd: Systemd) -> None:
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1", "HOME": "/"}
    manager = ServiceManager(environment)
    assert environment == {"HOME": "/"}
    manager.look(0.0, lambda: "fine")
    assert systemd.heard() == {"STATUS": "fine"}
    assert systemd.is_silent()
    manager.close()
