"""How the interpreter was built, as its own record of the build says."""

from __future__ import annotations

import sysconfig

import pytest

from shisha_rt.machine.host.interpreter import built_with_profiles, interpreter_in_words


@pytest.mark.parametrize(
    ("flags", "with_profiles"), [("-fprofile-use -fprofile-correction", True), ("", False), (None, True)]
)
def test_by_the_flags_of_its_build(monkeypatch: pytest.MonkeyPatch, flags: str | None, with_profiles: bool) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"PGO_PROF_USE_FLAG": flags}.get)
    assert built_with_profiles() is with_profiles
    assert interpreter_in_words().endswith("with profiles" if with_profiles else "without profiles")
