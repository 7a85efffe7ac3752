"""`python -m shisha_rt.daemon.children.shadow CHANNEL PARENT`: has another version compute what a daemon has answered,
and says by how much their answers differ.

It takes one frame at a time, so what serves is copied from no more often than the other version answers. Where no
frame comes for a while it ends with what it has.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shisha_rt.client import Client, ShishaError
from shisha_rt.costs.engine_trials import MOST_APART, MOST_UNLIKE
from shisha_rt.messages import shadow as sm
from shisha_rt.process.channel import Channel
from shisha_rt.process.parent import line_to_parent
from shisha_rt.tensors import NUMPY_OF

Array = npt.NDArray[Any]

PATIENCE_S: Final = 60.0
_ANSWER_S: Final = 60.0


def main(arguments: list[str]) -> int:
    channel = line_to_parent(arguments)
    begins = sm.TO_SHADOW.decode(channel.wait())
    assert isinstance(begins, sm.ShadowBegins)
    channel.send(sm.FROM_SHADOW.encode(_compared(channel, begins)))
    channel.wait()  # until the daemon, which has heard it, ends this process
    return 0


def _compared(channel: Channel, begins: sm.ShadowBegins) -> sm.ShadowEnds:
    compared = different = failed = 0
    difference = unlike = 0.0
    reason = ""
    with Client(begins.endpoint, timeout_s=_ANSWER_S) as client:
        while compared + failed < begins.frames:
            channel.send(sm.FROM_SHADOW.encode(sm.NextFrame()))
            if not select.select([channel], [], [], PATIENCE_S)[0]:
                break
            frame = sm.TO_SHADOW.decode(channel.wait())
            assert isinstance(frame, sm.ShadowFrame)
            try:
                answer = client.infer(_arrays(frame.inputs))
            except ShishaError as error:
                failed, reason = failed + 1, reason or str(error)
                continue
            compared += 1
            apart = [how_far_apart(array, answer.outputs[name]) for name, array in _arrays(frame.outputs).items()]
            most, share = (max(figures) for figures in zip(*apart, strict=True))
            difference, unlike = max(difference, most), max(unlike, share)
            different += most > MOST_APART or share > MOST_UNLIKE
    return sm.ShadowEnds(compared, different, failed, difference, unlike, reason)


def how_far_apart(before: Array, after: Array) -> tuple[float, float]:
    """Difference of reals as part of their largest value, and share of other integers; each 0 where it is the other."""
    if before.shape != after.shape:
        return (1.0, 0.0) if before.dtype.kind == "f" else (0.0, 1.0)
    if not before.size:
        return 0.0, 0.0
    if before.dtype.kind != "f":
        return 0.0, float(np.mean(before != after))
    finite = np.isfinite(before)
    if not (finite == np.isfinite(after)).all():
        return 1.0, 0.0
    both = before[finite].astype(np.float64), after[finite].astype(np.float64)
    if not finite.any():
        return 0.0, 0.0
    largest, most = float(np.abs(both[0]).max()), float(np.abs(both[0] - both[1]).max())
    return (most / largest if largest else float(most > 0)), 0.0


def _arrays(tensors: Mapping[str, sm.ShadowTensor]) -> dict[str, Array]:
    return {
        name: np.frombuffer(tensor.data, NUMPY_OF[tensor.datatype]).reshape(tensor.shape)
        for name, tensor in tensors.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
