"""The daemon's loop when a fault is its own: nobody who waits is left without an answer, and nothing stays behind."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from shisha_rt.daemon.front.requests import FrameAnswer
from shisha_rt.daemon.server import Daemon, Planning
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.detect import usable_cores
from shisha_rt.ready.model_on_machine import make_ready
from shisha_rt.wire.codes import Code
from shisha_rt.wire.request import InferRequest
from tests.serving.identity_model import frame_of, write_identity_model


class Fault(RuntimeError):
    pass


def test_a_fault_of_its_own_is_told_to_whoever_waits(tmp_path: Path) -> None:
    text = f'[[place]]\nname = "a"\ncores = [{usable_cores()[0]}]\n'
    ready = make_ready(write_identity_model(tmp_path), {}, parse_machine(text, name="one", source="one"))
    daemon = Daemon(ready, "tcp://127.0.0.1:0", 0, Planning())
    (tensor,), (output,) = ready.compiled.model.graph.inputs, ready.compiled.model.graph.outputs
    raw = {tensor.name: memoryview(frame_of(1).tobytes())}
    answers: list[FrameAnswer] = []

    def fail_while_frames_wait() -> None:
        if daemon.shell.cores.lifecycle.live is None:
            return
        for number in range(20):  # more than there are slots
            request = InferRequest(str(number), "s", None, None, raw, (output.name,), len(raw[tensor.name]))
            daemon.shell.submit("c", request, answers.append)
        raise Fault

    with pytest.raises(Fault):
        daemon.run(turn=fail_while_frames_wait)
    assert [answer.request.id for answer in answers] == [str(number) for number in range(20)]
    assert {answer.code for answer in answers} == {Code.UNAVAILABLE}
    assert not [child for child in psutil.Process().children() if "stages.worker" in child.cmdline()]
