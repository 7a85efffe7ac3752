"""Threads that send frames over HTTP, one after the other, and go on if a request fails."""

from __future__ import annotations

import http.client
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

ANSWER_S: Final = 20.0
_AGAIN_S: Final = 0.05

Frame = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server accepts frames on loopback. `head`: the beginning of a request's body, before the frame."""

    port: int
    path: str
    head: bytes = b""

    @classmethod
    def of_model(cls, port: int, model: str, shape: Sequence[int]) -> Address:
        """The address of a model by the Open Inference Protocol, with one input `x` as raw bytes."""
        binary = f'"parameters":{{"binary_data_size":{4 * int(np.prod(shape))}}}'
        tensor = f'{{"name":"x","shape":{list(shape)},"datatype":"FP32",{binary}}}'
        head = f'{{"inputs":[{tensor}],"parameters":{{"binary_data_output":true}}}}'
        return cls(port, f"/v2/models/{model}/infer", head.encode())


class HttpAsking(threading.Thread, ABC):
    """One frame after the other over a persistent connection, and a new one if it breaks.

    `lost`: requests that ended without an answer. `errors`: answers without a result, by status.
    """

    def __init__(self, address: Address, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self.errors: Counter[int] = Counter()
        self.lost = 0
        self._address, self._ending = address, ending

    @abstractmethod
    def new_frame(self) -> Frame:
        """The next frame to send."""

    @abstractmethod
    def take(self, frame: Frame, body: bytes, sent_s: float, answered_s: float) -> None:
        """Handle a result, whose tensor is at the end of `body`."""

    def run(self) -> None:
        address = self._address
        headers = {"Content-Type": "application/octet-stream"}
        if address.head:
            headers["Inference-Header-Content-Length"] = str(len(address.head))
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=ANSWER_S)
        while not self._ending.is_set():
            frame, sent_s = self.new_frame(), time.monotonic()
            try:
                connection.request("POST", address.path, address.head + frame.tobytes(), headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()  # the next request opens it again
                self.lost += 1
                self._ending.wait(_AGAIN_S)
                continue
            answered_s = time.monotonic()
            self.longest_s = max(self.longest_s, answered_s - sent_s)
            if answer.status == 200:
                self.take(frame, body, sent_s, answered_s)
            else:
                self.errors[answer.status] += 1
                self._ending.wait(_AGAIN_S)
        connection.close()


def errors_in_words(clients: Sequence[HttpAsking]) -> str | int:
    """Counts of errors by status, such as `503 2, 504 1`; 0: none."""
    errors = sum((client.errors for client in clients), Counter[int]())
    return ", ".join(f"{status} {count}" for status, count in sorted(errors.items())) or 0
