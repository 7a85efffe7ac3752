"""Descriptors with numbers from 1,024 on, which `select.select` refuses: those of a daemon with many clients, and of
its children, which have what they are passed under its numbers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shisha_rt.daemon.children import preparer_link
from shisha_rt.daemon.children.preparer_link import PreparerLink
from shisha_rt.errors import Error, Failure
from shisha_rt.messages import shadow as sm
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import start_with_channel
from shisha_rt.process.readable import await_ready
from tests.process.descriptors import low_descriptors_in_use
from tests.protocol.gateway import Gateway
from tests.waiting import PATIENCE_S, until
from tests.wording import raised


@pytest.fixture(autouse=True)
def _lower_ones_are_in_use() -> Iterator[None]:
    with low_descriptors_in_use():
        yield


def test_what_is_ready_is_named() -> None:
    reads, writes = os.pipe()
    try:
        assert await_ready([reads], -1.0, [writes]) == {writes}
        os.write(writes, b"!")
        assert await_ready([reads], 0) == {reads}
    finally:
        os.close(reads)
        os.close(writes)


def _next(channel: Channel) -> sm.FromShadow:
    while (data := channel.take()) is None:
        assert channel.open
        assert await_ready([channel.fileno()], PATIENCE_S)
    return sm.FROM_SHADOW.decode(data)


def test_answers_are_compared() -> None:
    with Gateway() as gateway:
        child, channel = start_with_channel("shisha_rt.daemon.children.shadow")
        try:
            channel.send(sm.TO_SHADOW.encode(sm.ShadowBegins(gateway.endpoint, 1)))
            assert isinstance(_next(channel), sm.NextFrame)
            x, y = (sm.ShadowTensor("FP32", (1, 3), np.full(3, n, np.float32).tobytes()) for n in (1, 2))
            channel.send(sm.TO_SHADOW.encode(sm.ShadowFrame({"x": x}, {"y": y})))
            ended = _next(channel)
            assert isinstance(ended, sm.ShadowEnds)
            assert (ended.compared, ended.different, ended.failed) == (1, 0, 0)
        finally:
            child.end()
            channel.close()


def test_a_model_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that does it ends, which the daemon hears."""
    (tmp_path / "ends.py").write_text("import time\ntime.sleep(0.2)\nraise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.setattr(preparer_link, "_MODULE", "ends")
    with closing(PreparerLink()) as link, pytest.raises(Failure) as failure:
        link.wait(lambda step: None)
    assert failure.value.kind == Error.CHILD_DIED


def test_a_process_that_is_not_understood_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` waited for ever for the end of a process that went on."""
    program = "import socket, sys, time\nsocket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b'x'], [0])\n"
    (tmp_path / "goes_on.py").write_text(f"{program}time.sleep({PATIENCE_S})\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.setattr(preparer_link, "_MODULE", "goes_on")
    began_s = time.monotonic()
    with closing(PreparerLink()) as link, raised(Failure, Error.CHILD_DIED, match="no message"):
        link.wait(lambda step: None)
    assert time.monotonic() < began_s + PATIENCE_S


def test_what_a_dead_process_is_asked_is_no_other_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that died before it was asked ended `serve` with a traceback."""
    (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.setattr(preparer_link, "_MODULE", "ends")
    with closing(PreparerLink()) as link:
        until(lambda: link._child.poll() is not None)
        asked: Any = None
        link.ask(asked)
        with raised(Failure, Error.CHILD_DIED, match="3"):
            link.wait(lambda step: None)
