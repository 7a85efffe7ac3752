"""Clients of one manner, all in a process of its own: `polite` ones, `greedy` ones, or ones that never read (`deaf`).

They speak the wire themselves, with one request encoded beforehand, so that a hundred cost little and none is held
back by a client library that would behave.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import zmq

from benchmarks.rigs.child_process import say
from shisha_rt.client import Client
from shisha_rt.tensors import NUMPY_OF

IN_FLIGHT: Final = {"polite": 1, "greedy": 1000, "deaf": 1_000_000}


@dataclass(slots=True)
class _One:
    """A client, what it has in flight, and what came of it."""

    socket: zmq.Socket[bytes]
    sent: dict[int, float] = field(default_factory=dict)
    number: int = 0


class Crowd:
    """`count` clients of one manner."""

    def __init__(self, endpoint: str, manner: str, count: int) -> None:
        with Client(endpoint) as client:
            metadata = client.metadata()["model"]
        generator = np.random.default_rng(0)
        tensors = [
            generator.standard_normal(tensor["shape"]).astype(NUMPY_OF[tensor["datatype"]])
            for tensor in metadata["inputs"]
        ]
        self._raw = [tensor.tobytes() for tensor in tensors]
        self._header = {
            "op": "infer",
            "model_name": metadata["name"],
            "inputs": [
                {**tensor, "parameters": {"binary_data_size": len(raw)}}
                for tensor, raw in zip(metadata["inputs"], self._raw, strict=True)
            ],
        }
        self._manner = manner
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._ones = [_One(context.socket(zmq.DEALER)) for _ in range(count)]
        for one in self._ones:
            one.socket.set(zmq.LINGER, 0)
            one.socket.set(zmq.SNDHWM, 8)
            one.socket.set(zmq.RCVHWM, 1 if manner == "deaf" else 1000)
            one.socket.connect(endpoint)

    def burst(self, seconds: float) -> dict[str, object]:
        """Go on for `seconds`. `latency_s`: of answers with a result; `refused`: of what was answered otherwise."""
        latency_s: list[float] = []
        refused = 0
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            moved = False
            for one in self._ones:
                moved |= self._send(one)
                while self._manner != "deaf" and one.socket.poll(0):
                    answer = json.loads(one.socket.recv_multipart()[0])
                    taken_s = time.monotonic() - one.sent.pop(int(answer["id"]))
                    moved = True
                    if "error" in answer:
                        refused += 1
                    else:
                        latency_s.append(taken_s)
            if not moved:
                time.sleep(5e-4)
        return {"latency_s": latency_s, "refused": refused}

    def _send(self, one: _One) -> bool:
        if len(one.sent) >= IN_FLIGHT[self._manner] or not one.socket.poll(0, zmq.POLLOUT):
            return False
        header = json.dumps({**self._header, "id": str(one.number)}).encode()
        one.socket.send_multipart([header, *self._raw], copy=False)
        one.sent[one.number] = time.monotonic()
        one.number += 1
        return True


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    crowd = Crowd(settings["endpoint"], settings["manner"], settings["count"])
    say(ready=True)
    for line in sys.stdin:
        say(**crowd.burst(**json.loads(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
