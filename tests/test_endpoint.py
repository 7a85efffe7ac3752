"""Where a daemon is looked for, and what sends frames to one that listens elsewhere."""

from __future__ import annotations

import shlex

import pytest

from shisha_rt.endpoint import ENDPOINT, default_endpoint, submit_command


@pytest.mark.parametrize(("variable", "endpoint"), [(None, ENDPOINT), ("", ENDPOINT), ("ipc:///tmp/a", "ipc:///tmp/a")])
def test_the_environment_goes_before_the_default(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, endpoint: str
) -> None:
    if variable is None:
        monkeypatch.delenv("SHISHA_ENDPOINT", raising=False)
    else:
        monkeypatch.setenv("SHISHA_ENDPOINT", variable)
    assert default_endpoint() == endpoint


def test_the_command_that_sends_names_what_is_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHISHA_ENDPOINT", "ipc:///tmp/a")
    assert shlex.split(submit_command("ipc:///tmp/a")) == ["shisha-rt", "submit", "--frames", "1000"]
    words = shlex.split(submit_command(ENDPOINT, "detector"))
    assert words[2:6] == ["--endpoint", ENDPOINT, "--model", "detector"]
