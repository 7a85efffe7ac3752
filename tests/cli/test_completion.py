"""What a shell is offered when TAB is pressed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shisha_rt.cli.completion import ZOO
from shisha_rt.model.zoo import NAMES, TRAINED
from tests.cli.conftest import Run


@pytest.fixture
def offered(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    def complete(*words: str) -> list[str]:
        monkeypatch.setenv("_SHISHA_RT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["shisha-rt", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        ran = run()
        assert (ran.status, ran.err) == (0, "")
        return ran.out.split()

    return complete


def test_the_zoo_is_the_zoo() -> None:
    assert sorted(ZOO) == sorted([*NAMES, *TRAINED])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sub",), ["submit"]),
        (("serve", "zoo:sq"), ["zoo:squeezenet"]),
        (("service", "zoo:sq"), ["zoo:squeezenet"]),
        (("serve", "model"), []),  # and the shell offers files
        (("serve", "m.onnx", "--machine", "this"), ["this-machine"]),
        (("costs", "m.onnx", "--machine", "pim"), ["pim-2", "pim-board"]),
        (("serve", "m.onnx", "--strategy", "g"), ["guided"]),
        (("plan", "--strategy", "ex"), ["exact", "exhaustive"]),
        (("serve", "m.onnx", "--objective", "l"), ["latency"]),
        (("serve", "m.onnx", "--metr"), ["--metrics"]),
    ],
)
def test_what_is_offered(offered: Callable[..., list[str]], words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected
