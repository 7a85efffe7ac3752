"""How an extra is installed, by how the package was."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pytest

from shisha_rt.extras import pip_install


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'shisha-rt[plot]'"),
        ({"url": "https://host/shisha_rt.whl", "archive_info": {}}, "pip install 'shisha-rt[plot]'"),
        ({"url": "file:///a%20b/rt", "dir_info": {}}, "pip install '/a b/rt[plot]'"),
        ({"url": "file:///rt", "dir_info": {"editable": True}}, "pip install --editable '/rt[plot]'"),
        ({"url": "file:///rt/rt.whl", "archive_info": {}}, "pip install '/rt/rt.whl[plot]'"),
    ],
)
def test_it_is_installed_as_the_package_was(monkeypatch: pytest.MonkeyPatch, origin: Any, command: str) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return json.dumps(origin) if origin and name == "direct_url.json" else None

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
    assert pip_install("plot") == command
