"""How an extra is installed, by how the package was."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.extras import pip_install

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'shisha-rt[plot]'"),
        ({"url": "https://host/shisha_rt.whl", "archive_info": {}}, "pip install 'shisha-rt[plot]'"),
        ({"url": "file://{here}/a%20b", "dir_info": {}}, "pip install '{here}/a b[plot]'"),
        ({"url": "file://{here}", "dir_info": {"editable": True}}, "pip install --editable '{here}[plot]'"),
        ({"url": "file://{here}/rt.whl", "archive_info": {}}, "pip install '{here}/rt.whl[plot]'"),
        ({"url": "file://{here}/removed.whl", "archive_info": {}}, "pip install 'shisha-rt[plot]'"),
        ({"url": "file://{here}/removed", "dir_info": {"editable": True}}, "pip install 'shisha-rt[plot]'"),
    ],
)
def test_it_is_installed_as_the_package_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: Any, command: str
) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "rt.whl").touch()

    class Installed:
        def read_text(self, name: str) -> str | None:
            text = json.dumps(origin).replace("{here}", str(tmp_path))
            return text if origin and name == "direct_url.json" else None

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
    assert pip_install("plot") == command.replace("{here}", str(tmp_path))


def test_every_message_goes_by_that() -> None:
    written = [
        f"{path.name}: {line.strip()}"
        for package in ("shisha_rt", "stages")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "pip install" in line and "shisha-rt[" in line
    ]
    assert written == []
