"""The page on security names each operation, with the permission that it asks for."""

from __future__ import annotations

import re
from typing import Final

from shisha_rt.protocol.operations import CONTROL_OPS, INFER, OPERATIONS
from tests.pages.shown import ROOT

TABLE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## What each may do")[2]


def test_each_operation_is_listed_for_those_who_may_ask_for_it() -> None:
    listed = {
        name: client.strip() == "yes"
        for names, client in re.findall(r"^\| (`.+?) \| (.+?) \| yes \|$", TABLE.partition("\n## ")[0], re.MULTILINE)
        for name in re.findall(r"`(.+?)`", names)
    }
    assert listed == {name: name not in CONTROL_OPS for name in (INFER, *OPERATIONS)}
