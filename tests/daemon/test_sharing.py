"""Where clients get memory to share: the path that they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

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
