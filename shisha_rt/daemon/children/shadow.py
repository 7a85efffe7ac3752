"""`python -m shisha_rt.daemon.children.shadow CHANNEL PARENT`: sends frames that a daemon has answered to another
version, and reports how much their answers differ.

It takes one frame at a time, so the daemon copies frames no more often than the other version answers. It ends early if
no frame comes for a while, or if the other version fails on one, which shows that it must not take over.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shisha_rt.client import Client, ShishaError
from shisha_rt.costs.agreement import how_far_apart
from shisha_rt.costs.engine_trials import why_apart
from shisha_rt.messages import shadow as sm
from shisha_rt.process.channel import Channel
from shisha_rt.process.parent import line_to_parent
from shisha_rt.process.readable import is_readable
from shisha_rt.tensors import NUMPY_OF

Array = npt.NDArray[Any]

PATIENCE_S: Final = 60.0
_ANSWER_S: Final = 60.0


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    begins = sm.TO_SHADOW.decode(channel.wait())
    assert isinstance(begins, sm.ShadowBegins)
    channel.send(sm.FROM_SHADOW.encode(_compared(channel, begins)))
    channel.wait()  # the daemon ends this process when it has the result
    return 0


def _compared(channel: Channel, begins: sm.ShadowBegins) -> sm.ShadowEnds:
    compared = different = 0
    difference = unlike = 0.0
    with Client(begins.endpoint, timeout_s=_ANSWER_S) as client:
        while compared < begins.frames:
            channel.send(sm.FROM_SHADOW.encode(sm.NextFrame()))
            if not is_readable(channel.fileno(), PATIENCE_S):
                break
            frame = sm.TO_SHADOW.decode(channel.wait())
            assert isinstance(frame, sm.ShadowFrame)
            try:
                answer = client.infer(_arrays(frame.inputs))
            except ShishaError as error:
                return sm.ShadowEnds(compared, different, 1, difference, unlike, str(error))
            compared += 1
            try:
                apart = how_far_apart(answer.outputs, _arrays(frame.outputs))
            except ValueError:  # outputs differ in shape, or in which of their values are finite
                different, difference = different + 1, max(difference, 1.0)
                continue
            difference, unlike = max(difference, apart.difference or 0.0), max(unlike, apart.unlike or 0.0)
            different += bool(why_apart(*apart))
    return sm.ShadowEnds(compared, different, 0, difference, unlike)


def _arrays(tensors: Mapping[str, sm.ShadowTensor]) -> dict[str, Array]:
    return {
        name: np.frombuffer(tensor.data, NUMPY_OF[tensor.datatype]).reshape(tensor.shape)
        for name, tensor in tensors.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
