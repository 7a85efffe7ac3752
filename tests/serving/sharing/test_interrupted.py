"""Ctrl-C, or what else a signal's handler raises, amid a call of the blocking client: no later frame pays for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import numpy as np
import pytest

from shisha_rt.client import Client
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import CHANNELS, Array, frame_of, write_identity_model
from tests.waiting import PATIENCE_S

_SIZE: Final = 64  # 256 KiB a tensor: large enough to be lent
_SHAPE: Final = (1, CHANNELS, _SIZE, _SIZE)
_PACKAGES: Final = tuple(f"shisha_rt/{name}" for name in ("client/", "protocol/", "process/channel"))
_RELEASING: Final = frozenset({"give_back", "__del__"})  # whatever is raised there is reported, and goes no further
_EVERY: Final = 5
"""One of so many lines is interrupted: of all of them by the long test."""


class _CtrlC:
    """Raises KeyboardInterrupt at the line number `at` of those that are run within the context."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.came = False

    def __enter__(self) -> _CtrlC:
        sys.settrace(self._enter)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def _enter(self, frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        is_ours = any(name in code.co_filename for name in _PACKAGES) and code.co_name not in _RELEASING
        return self._line if is_ours else None

    def _line(self, _frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left < 0:
                sys.settrace(None)
                self.came = True
                raise KeyboardInterrupt
        return self._line


def _one(client: Client, frame: Array) -> None:
    client.infer(frame)


def _lent(client: Client, frame: Array) -> None:
    array = client.empty(frame.shape, frame.dtype)
    array[...] = frame
    client.infer(array)


def _several(client: Client, frame: Array) -> None:
    with client.stream(in_flight=2) as stream:
        for _ in stream.run(frame + number for number in range(3)):
            pass


@pytest.fixture(scope="module", params=[4, _SIZE], ids=["small", "large"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("interrupted")
    model = write_identity_model(folder, size=request.param)
    with DaemonProcess(folder, model, "--machine", machine_file(folder, ["a", "b"])) as running:
        yield running


def _assert_that_later_frames_are_right(
    daemon: DaemonProcess, call: Callable[[Client, Array], None], share: bool, every: int
) -> None:
    inputs = daemon.control.metadata()["model"]["inputs"]
    first, second = (frame_of(number, tuple(inputs[0]["shape"])) for number in (1, 2))
    with Client(daemon.endpoint, timeout_s=PATIENCE_S, share=share) as client:
        client.infer(first)
        at, interrupt = 0, _CtrlC(0)
        while at == 0 or interrupt.came:
            with _CtrlC(at) as interrupt:
                call(client, first)
            for frame in (second, first, second):
                assert np.array_equal(client.infer(frame).output, frame), at
            client.infer(first)
            conversation = client._link.conversation
            assert not client._settled, at
            assert not conversation.in_flight, at
            assert not conversation._frozen, at
            at += every
        assert at > every


@pytest.mark.parametrize("share", [True, False])
def test_later_frames_are_right(daemon: DaemonProcess, share: bool) -> None:
    _assert_that_later_frames_are_right(daemon, _lent, share, _EVERY)


@pytest.mark.long
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("call", [_one, _lent, _several])
def test_later_frames_are_right_wherever_it_came(
    daemon: DaemonProcess, call: Callable[[Client, Array], None], share: bool
) -> None:
    _assert_that_later_frames_are_right(daemon, call, share, 1)
