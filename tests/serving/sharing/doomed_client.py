"""A client that shares memory, in flight with frames of its own until it is killed: `python -m ... ENDPOINT`.

It ends with status 1 if an answer is wrong.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import numpy as np

from shisha_rt.client import Client
from tests.serving.identity_model import Array, frame_of

IN_FLIGHT = 8


def main(endpoint: str, size: int) -> int:
    with Client(endpoint) as client, client.stream(in_flight=IN_FLIGHT) as stream:

        def frames() -> Iterator[Array]:
            for number in itertools.count():
                frame = client.empty((1, 16, size, size), np.float32)
                frame[...] = frame_of(number % 2**20, frame.shape)
                yield frame

        for number, answer in enumerate(stream.run(frames())):
            if not (answer.output == frame_of(number % 2**20, answer.output.shape)).all():
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
