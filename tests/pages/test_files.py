"""Files that the pages show are read by those who read such files."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path
from typing import Final

from shisha_rt.machine.config.device_files import parse_device
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.protocol.access import access_list
from shisha_rt.repository.entries import entries_of
from tests.pages.shown import ROOT

INDENTED: Final = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)


def in_toml(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_a_machine_and_its_devices() -> None:
    page = (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")
    blocks = [textwrap.dedent(block).strip() for block in INDENTED.findall(page)]
    machine, measured, described = (block for block in blocks if " = " in block)
    assert parse_machine(machine, name="board", source="machines.md").places[0].devices == ("ort_serial", "openvino")
    assert not parse_device(measured, name="mine", source="machines.md").described
    assert parse_device(described, name="pim", source="machines.md").described


def test_a_machine_with_other_hosts() -> None:
    (machine,) = in_toml("cluster.md")
    assert parse_machine(machine, name="cluster", source="cluster.md").places


def test_an_allow_list() -> None:
    (users,) = in_toml("security.md")
    assert len(access_list(tomllib.loads(users), "security.md").users) == 2


def test_a_daemon_file_of_several_models(tmp_path: Path) -> None:
    (several,) = in_toml("several-models.md")
    path = tmp_path / "models.toml"
    path.write_text(several, encoding="utf-8")
    for model in ("detector.onnx", "recogniser.onnx"):
        (tmp_path / model).touch()
    _, entries = entries_of([str(path)], {})
    assert [(entry.name, entry.version) for entry in entries] == [("detector", "3"), ("recogniser", "1")]
