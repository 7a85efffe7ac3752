"""Where clients get memory to share: the path that they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.sharing import Sharing
from shisha_rt.daemon.loop.poller import Poller


def test_beside_a_relative_endpoint_it_is_told_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may be in another folder than their daemon."""
    monkeypatch.chdir(tmp_path)
    poller = Poller()
    sharing = Sharing("ipc://daemon", "instance", Regions(16, 1 << 20), poller)
    assert sharing.path == tmp_path / "daemon.share" / "socket"
    assert sharing.path.is_socket()
    sharing.close()
    poller.close()
    assert not [*tmp_path.iterdir()]
