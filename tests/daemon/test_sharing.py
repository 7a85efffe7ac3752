"""Where clients get memory to share: the path that they are told."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

import pytest

from shisha_rt.daemon.front.ipc_socket import IpcSocket, lock_file
from shisha_rt.daemon.front.sharing import make_private
from tests.daemon.local_gateway import LocalGateway


def test_beside_a_relative_endpoint_it_is_told_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may be in another folder than their daemon."""
    monkeypatch.chdir(tmp_path)
    with LocalGateway("ipc://daemon") as gateway:
        assert gateway.sharing.path == tmp_path / "daemon.share" / "socket"
        assert gateway.sharing.path.is_socket()
    assert not [*tmp_path.iterdir()]


def test_it_is_there_in_a_folder_that_gives_its_group_to_what_is_made_in_it(tmp_path: Path) -> None:
    """As Kubernetes has volumes (`fsGroup`)."""
    tmp_path.chmod(0o2770)
    with LocalGateway(f"ipc://{tmp_path}/daemon") as gateway:
        assert gateway.sharing.path == tmp_path / "daemon.share" / "socket"
        assert gateway.sharing.path.parent.stat().st_mode & 0o7777 == 0o2700


def test_it_is_not_in_a_folder_that_goes_when_its_user_logs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with LocalGateway("tcp://127.0.0.1:0") as gateway:
        assert gateway.sharing.path is not None
        assert gateway.sharing.path.is_relative_to(tmp_path)


def test_where_paths_are_too_long_it_is_in_a_short_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of UNIX sockets have at most 107 bytes."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("d" * 100)))
    endpoints = f"ipc://{tmp_path}/{'d' * (100 - len(str(tmp_path)))}", "tcp://127.0.0.1:0"
    for endpoint in endpoints:
        with LocalGateway(endpoint) as gateway:
            assert gateway.sharing.path is not None
            assert gateway.sharing.path.parent.parent == Path(f"/tmp/shisha-rt-{os.geteuid()}")
            gateway.line().close()
        assert not gateway.sharing.path.parent.exists()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("step", ["mkdir", "lstat"])
def test_the_folder_is_made_again_if_a_daemon_that_ends_removes_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = tmp_path / f"shisha-rt-{os.geteuid()}" / "5555"
    at = folder if step == "mkdir" else folder.parent
    real, removed = getattr(Path, step), list[Path]()

    def late(path: Path, **given: int) -> object:
        if path == at and not removed:
            folder.parent.rmdir()
            removed.append(path)
        return real(path, **given)

    monkeypatch.setattr(Path, step, late)
    make_private(folder)
    assert removed
    assert folder.is_dir()


def test_the_folder_is_not_made_where_its_parent_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_private(tmp_path / "none" / "5555")


@pytest.fixture
def for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for all daemons of this user."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"shisha-rt-{os.geteuid()}"


def test_what_killed_daemons_have_left_at_other_ports_goes_with_the_next_start(for_all: Path) -> None:
    """It stayed until a daemon started at the same port, which may be a free one that the kernel has drawn."""
    for port in range(7000, 7020):
        make_private(for_all / str(port))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
            left.bind(str(for_all / str(port) / "socket"))
        (for_all / str(port) / "socket.lock").touch()
    make_private(for_all / "8000")
    living = IpcSocket(f"ipc://{for_all}/8000/socket", socket.SOCK_SEQPACKET)
    make_private(for_all / "9000.models")  # of a host process, whose daemons outlive it
    (for_all / "9000.models" / "1.json").touch()
    before = (for_all / "8000" / "socket").stat().st_ino
    with LocalGateway("tcp://127.0.0.1:0") as gateway:
        assert gateway.sharing.path is not None
        assert {folder.name for folder in for_all.iterdir()} == {
            gateway.sharing.path.parent.name,
            "8000",
            "9000.models",
        }
        gateway.line().close()
    assert (for_all / "8000" / "socket").stat().st_ino == before
    living.close()


def test_who_starts_where_another_removes_what_is_left_comes_after(
    for_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    folder = for_all / str(port)
    make_private(folder)
    removing = lock_file(folder / "socket.lock")

    def removed(seconds: float) -> None:
        slept.append(seconds)
        os.close(removing)
        (folder / "socket.lock").unlink()
        folder.rmdir()
        monkeypatch.setattr(time, "sleep", slept.append)

    monkeypatch.setattr(time, "sleep", removed)
    with LocalGateway(f"tcp://127.0.0.1:{port}") as gateway:
        assert gateway.sharing.path == folder / "socket"
    assert len(slept) == 1
